"""Sweeps as earlier versions stored them."""

import json

from runmanager.records.files.paths import SweepPaths

__all__ = ["with_names_as_folders"]


def with_names_as_folders(sweep: SweepPaths) -> None:
    """Give the runs the folders that they had when a run's folder had its name."""
    plan = json.loads(sweep.record.read_text())
    for cell in plan["planned"]:
        name = cell.pop("name")
        sweep.run(cell["run"]).root.rename(sweep.runs / name)
        cell["run"] = name
    sweep.record.write_text(json.dumps(plan))
