"""What `runmanager schema` knows: files of sweeps, and the documents that commands print with `--format json`.

A document may have further names: readers ignore those that they do not know. A row of a table has its settings and
logged metrics too, and lacks what `--columns` leaves out.
"""

from typing import Any

import msgspec

from runmanager.cli.commands.schema import SchemaKind
from runmanager.cli.machine_checks import Check
from runmanager.records.run.measurement import MEASUREMENTS, Unit
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.table_model.columns import BASE_SETTINGS, COMPARISON_COLUMNS, EFFECTS
from runmanager.results.tables.sweep_listing import LISTED_COLUMNS

_Number = int | float | None
_Value = str | int | float | bool | list[Any] | dict[str, Any] | None


class RankedRun(msgspec.Struct):
    """A run of a ranked cell; `epoch` is that of its value, where that is of one epoch."""

    run: str
    value: float
    folder: str
    epoch: int | msgspec.UnsetType = msgspec.UNSET


class RankedCell(msgspec.Struct):
    """A cell by its mean over seeds; `unfinished` counts its other runs."""

    settings: dict[str, Any]
    mean: float
    deviation: float | None
    seeds: int
    unfinished: int
    runs: list[RankedRun]


class BestDocument(msgspec.Struct):
    """Of `runmanager best`: the winner and the next cell; the settings of those that may be as good."""

    metric: str
    best: RankedCell
    runner_up: RankedCell | None
    verdict: str | None
    reason: str | None
    rivals: list[dict[str, Any]]
    unmeasured: list[dict[str, Any]]
    flattery: float | None
    num_cells: int
    num_ties: int
    num_left_out: int
    command: list[str] | None
    at: str | msgspec.UnsetType = msgspec.UNSET
    not_finite: list[str] | msgspec.UnsetType = msgspec.UNSET


class ShownRun(msgspec.Struct):
    """Of `runmanager show`: the folder of a run, its record (`runmanager schema run`) and its epochs."""

    folder: str
    record: RunRecord
    epochs: list[EpochRecord]


class WatchedCell(msgspec.Struct):
    """`state` is that of the record, or `pending`, `queued`, or `damaged`."""

    run: str
    state: str
    reason: str | None
    message: str | None
    folder: str


class WatchedSweep(msgspec.Struct):
    """Of `runmanager watch --once`: whether all has ended, the exit status so far, and the cells."""

    folder: str
    is_ended: bool
    status: int
    cells: list[WatchedCell]


class LoggedNumber(msgspec.Struct):
    """Of `runmanager scalars`: a number in a log, how often it was printed, and the `--scalar` that reads it."""

    name: str
    last: float | int
    times: int
    is_metric: bool
    scalar: str | None


class Difference(msgspec.Struct):
    """Of `runmanager diff`: the two folders, and by kind the differences, as the two values by name."""

    runs: list[str]
    state: dict[str, list[Any]] = {}
    settings: dict[str, list[Any]] = {}
    metrics: dict[str, list[Any]] = {}
    logged: dict[str, list[Any]] = {}


def _rows(name: str, **types: Any) -> Any:
    """The rows of a table: any of its columns may be left out."""
    fields: list[Any] = [(column, type_ | msgspec.UnsetType, msgspec.UNSET) for column, type_ in types.items()]
    return list[msgspec.defstruct(name, fields)]  # type: ignore[misc]


_RESULTS = {each.name: _Value if each.unit is Unit.NONE else _Number for each in MEASUREMENTS}
_EFFECTS = dict.fromkeys((*EFFECTS, "ci_low", "ci_high"), _Number)

TYPES: dict[SchemaKind, Any] = {
    SchemaKind.RUN: RunRecord,
    SchemaKind.EPOCHS: EpochRecord,
    SchemaKind.SWEEP: SweepRecord,
    SchemaKind.TABLE: _rows(
        "ResultRow", run=str, status=str, reason=str | None, **dict.fromkeys(BASE_SETTINGS, _Value), **_RESULTS
    ),
    SchemaKind.COMPARE: _rows(
        "ComparedRow", **{name: _EFFECTS.get(name, _Value) for name in (*COMPARISON_COLUMNS, *EFFECTS)}
    ),
    SchemaKind.BEST: BestDocument,
    SchemaKind.LS: _rows("ListedSweep", **dict.fromkeys(LISTED_COLUMNS, _Value)),
    SchemaKind.SHOW: ShownRun,
    SchemaKind.DIFF: Difference,
    SchemaKind.SCALARS: list[LoggedNumber],
    SchemaKind.WATCH: WatchedSweep,
    SchemaKind.DOCTOR: list[Check],
}
"""The types by what `runmanager schema` is asked for."""
