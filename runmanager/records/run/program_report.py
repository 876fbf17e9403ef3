"""What a program knows about its run, where another process writes run.json: reported.json, and merging it."""

from typing import Any, TypeVar

import msgspec

from runmanager.records.files.whole_numbers import Int64
from runmanager.records.run.run_record import SCHEMA_VERSION, Environment, Measurements, RunRecord
from runmanager.records.run.status import Outcome, Status

__all__ = ["ProgramReport", "with_report"]


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
