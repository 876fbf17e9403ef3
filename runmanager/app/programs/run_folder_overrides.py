"""Hydra's overrides that place a job in its run folder."""

from runmanager.app.request.override_quoting import quote_text
from runmanager.launching.plan import PlannedRun
from runmanager.records.files.paths import SweepPaths

__all__ = ["run_folder_overrides"]


def run_folder_overrides(run: PlannedRun, sweep: SweepPaths) -> list[str]:
    """Return the overrides that make the run's folder the output folder of its job."""
    return [
        f"hydra.sweep.dir={quote_text(str(sweep.root))}",
        f"hydra.sweep.subdir={quote_text(f'runs/{run.paths.name}')}",
    ]
