"""What a program knows about its run, where another process writes run.json: reported.json, and merging it."""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Any, TypeVar

import msgspec

from runmanager.records.files.file_errors import Int64
from runmanager.records.run.run_record import SCHEMA_VERSION, Environment, Measurements, RunRecord
from runmanager.records.run.status import Outcome, Status


class ProgramReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of a run that its program reports, by the field names of `RunRecord`; None or unset if not known yet.

    The program belongs to a cell whose supervisor alone writes run.json. `attempt` is the attempt of the run that the
    report belongs to, `outcome` how the run ended in the program, None while it is running.
    """

    schema_version: Int64 = SCHEMA_VERSION
    attempt: Int64 = 1
    outcome: Outcome | None = None
    num_parameters: Int64 | None = None
    epochs_planned: Int64 | None = None
    interval: str | msgspec.UnsetType = msgspec.UNSET
    peak_memory_bytes: Int64 | None = None
    run_seconds: float | None = None
    environment: Environment = Environment()
    measurements: Measurements = Measurements()
    notes: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    better: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    summary: dict[str, float | None] | msgspec.UnsetType = msgspec.UNSET
    world_size: Int64 | msgspec.UnsetType = msgspec.UNSET
    num_records: Int64 | msgspec.UnsetType = msgspec.UNSET


_OF_REPORT = ("schema_version", "attempt", "outcome")  # itself
_LINES = ("notes", "deviations")
_MAPPINGS = ("better", "summary")
_STRUCTS = ("environment", "measurements")
_SCALARS = tuple(
    name for name in ProgramReport.__struct_fields__ if name not in (*_OF_REPORT, *_LINES, *_MAPPINGS, *_STRUCTS)
)

_Facts = TypeVar("_Facts", Environment, Measurements)


def with_report(record: RunRecord, report: ProgramReport | None) -> RunRecord:
    """Return the record with what its program reported; unchanged without a report of the record's attempt.

    What the program reports replaces what the record has, field by field; notes and deviations are added. The status
    stays: only the process that writes run.json knows how the program ended.
    """
    if report is None or report.attempt != record.attempt or record.status is Status.PENDING:
        return record
    known = {name: getattr(report, name) for name in _SCALARS}
    changes: dict[str, Any] = {name: value for name, value in known.items() if value not in (None, msgspec.UNSET)}
    for name in _LINES:
        changes[name] = tuple(dict.fromkeys((*getattr(record, name), *getattr(report, name))))
    for name in _MAPPINGS:
        if reported := getattr(report, name):
            changes[name] = (getattr(record, name) or {}) | reported
    return msgspec.structs.replace(
        record,
        environment=_merged(record.environment, report.environment),
        measurements=_merged(record.measurements, report.measurements),
        **changes,
    )


def _merged(stored: _Facts, reported: _Facts) -> _Facts:
    nothing = type(reported)()
    names = stored.__struct_fields__
    known = {name: value for name in names if (value := getattr(reported, name)) != getattr(nothing, name)}
    return msgspec.structs.replace(stored, **known)


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
