"""The kinds of programs whose runs are stored, and how each runs removed cells again."""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Any

import msgspec

from runmanager.records.run.run_record import RunRecord

__all__ = ["GROUPS", "ProgramKind", "kind_of_program", "restored_with"]

GROUPS = ("dataset", "model", "optimizer", "scheduler", "loader", "measure")
"""The groups of the built-in job's settings whose choices have names."""


class ProgramKind(IntEnum):
    """What made a run: a custom loop is one with a `RunManager` or `start_run`, whose command is its own."""

    BUILT_IN = 1
    SCRIPT = 2
    APPLICATION = 3
    LOOP = 4
    ADOPTED = 5


_RESTORING = {
    ProgramKind.BUILT_IN: "--restore",
    ProgramKind.SCRIPT: "--restore",
    ProgramKind.APPLICATION: "hydra.sweeper.restore=true",
}


def kind_of_program(record: RunRecord) -> ProgramKind:
    """Return the kind of program that made a run."""
    if record.adopted is not msgspec.UNSET:
        return ProgramKind.ADOPTED
    if record.cell_command:
        return ProgramKind.SCRIPT if record.cell_command[0] == "runmanager" else ProgramKind.APPLICATION
    return ProgramKind.BUILT_IN if _has_all_groups(record.config) else ProgramKind.LOOP


def restored_with(kinds: Collection[ProgramKind], what: str) -> str:
    """Return how programs of these kinds run removed cells again, as the end of a sentence; empty where none does.

    `what` names the cells in it.
    """
    options = dict.fromkeys(option for kind, option in _RESTORING.items() if kind in kinds)
    ways = [f"a rerun of the sweep leaves {what} out unless it is given {' or '.join(options)}"] if options else []
    if ProgramKind.LOOP in kinds:
        ways.append(f"its program leaves {what} out unless `RunManager` is given `overwrite=True`")
    return ", and ".join(ways)


def _has_all_groups(config: Mapping[str, Any]) -> bool:
    """Whether each group of the built-in job's settings has the name of its choice."""
    return all(isinstance(config.get(group), Mapping) and "name" in config[group] for group in GROUPS)
