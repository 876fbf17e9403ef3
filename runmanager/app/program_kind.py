"""The kinds of programs whose runs are stored, and how each is told what a rerun does."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import msgspec

from runmanager.errors import RecordError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import read_record, run_names

__all__ = ["GROUPS", "ProgramKind", "kind_of_program", "kind_of_sweep"]

GROUPS = ("dataset", "model", "optimizer", "scheduler", "loader", "measure")
"""The groups of the built-in job's settings whose choices have names."""


class ProgramKind(Enum):
    """What made a run: a custom loop is one with a `RunManager` or `start_run`, whose command is its own."""

    BUILT_IN = auto()
    SCRIPT = auto()
    APPLICATION = auto()
    LOOP = auto()
    ADOPTED = auto()

    def dry_run(self) -> str:
        """The words that show the plan of its command."""
        return "hydra.sweeper.dry_run=true" if self is ProgramKind.APPLICATION else "--dry-run"

    def restored_with(self) -> str:
        """How its cells that were removed run again, as the end of a sentence; empty where nothing runs them."""
        if self is ProgramKind.ADOPTED:
            return ""
        if self is ProgramKind.LOOP:
            return "its program leaves its cell out unless `RunManager` is given `overwrite=True`"
        option = "hydra.sweeper.restore=true" if self is ProgramKind.APPLICATION else "--restore"
        return f"a rerun of the sweep leaves its cell out unless it is given {option}"

    def continued_with(self, sweep: SweepPaths) -> str:
        """How it continues a sweep, as the end of a sentence; empty where nothing does."""
        if self is ProgramKind.ADOPTED:
            return ""
        if self is ProgramKind.LOOP:
            return f"its program continues it where `RunManager` or `start_run` is given the folder {sweep.root}"
        option = {ProgramKind.SCRIPT: "--name ", ProgramKind.APPLICATION: "hydra.sweeper.name="}.get(self, "name=")
        return f"its command continues it with {option}{sweep.root.name}"


def kind_of_program(record: RunRecord) -> ProgramKind:
    """Return the kind of program that made a run."""
    if record.adopted is not msgspec.UNSET:
        return ProgramKind.ADOPTED
    if record.cell_command:
        return ProgramKind.SCRIPT if record.cell_command[0] == "runmanager" else ProgramKind.APPLICATION
    return ProgramKind.BUILT_IN if _has_all_groups(record.config) else ProgramKind.LOOP


def kind_of_sweep(sweep: SweepPaths) -> ProgramKind | None:
    """Return the kind of program that made the first run of a sweep that can be read; None if there is none."""
    for name in run_names(sweep):
        try:
            return kind_of_program(read_record(sweep.run(name)))
        except RecordError:
            continue
    return None


def _has_all_groups(config: Mapping[str, Any]) -> bool:
    """Whether each group of the built-in job's settings has the name of its choice."""
    return all(isinstance(config.get(group), Mapping) and "name" in config[group] for group in GROUPS)
