"""Tables of results: their rows and columns, those of what was logged too, and which direction is better in them."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.run.measurement import MEASUREMENTS, named
from runmanager.records.run.metric_names import BETTER, is_larger_better, parse_better
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.reader import StoredRun
from runmanager.validation import fault

MISSING = "N/A"
"""The text of a missing value, for people."""

BASE_SETTINGS = ("lr", "batch_size", "num_workers", "device")
"""The tutorials' four axes: columns of every results table, even if they do not vary."""

RUN_COLUMNS = ("run", "status", "reason")
RESULT_COLUMNS = named(MEASUREMENTS)
_OF_SOME = named(each for each in MEASUREMENTS if each.is_of_some)
_NO_COLUMNS = ("metrics", "units", "readings")  # of an epoch's fields
EPOCH_COLUMNS = ("run", *(name for name in EpochRecord.__struct_fields__ if name not in _NO_COLUMNS))
COMPARISON_COLUMNS = (
    *("axis", "baseline", "candidate", "baseline_samples_per_second", "candidate_samples_per_second", "speedup"),
    *("ci_low", "ci_high", "verdict", "reason", "baseline_epochs", "candidate_epochs"),
)
EFFECTS = ("speedup", "ratio", "difference")
"""The columns with the effect of a pair: one of these, depending on the metric."""

_MEASURED = {*RUN_COLUMNS, *RESULT_COLUMNS}
_OF_OTHER_METRICS = ("metric", *(f"{side}_{what}" for side in ("baseline", "candidate") for what in ("value", "runs")))
_RESERVED = ("nulls", "seeds", "note")  # columns of tables for people; `nulls` stays reserved for written tables
FIXED_COLUMNS = frozenset((*RUN_COLUMNS, *RESULT_COLUMNS, *EPOCH_COLUMNS, *_RESERVED))
"""The columns of the results and epochs tables whose names do not depend on the sweep."""

_TAKEN = {*FIXED_COLUMNS, *COMPARISON_COLUMNS, *EFFECTS, *_OF_OTHER_METRICS}


@dataclass(frozen=True)
class Directions:
    """The directions that runs declare: of each metric, `min` or `max` with the first run that declared it."""

    declared: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of_runs(cls, runs: Iterable[StoredRun]) -> "Directions":
        """Collect the directions that these runs declare."""
        return cls.collected((run.record.name, (run.record.better or {}).items()) for run in runs)

    @classmethod
    def collected(cls, runs: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> "Directions":
        """Collect them from the name of each run, and its declared directions by metric; other words are ignored."""
        declared: dict[str, dict[str, str]] = {}
        for run, directions in runs:
            for metric, word in directions:
                if word in BETTER:
                    declared.setdefault(metric, {}).setdefault(parse_better(word), run)
        return cls(declared)

    def of_columns(self, names: Mapping[str, str]) -> "Directions":
        """Return them by column, given the metric of each column."""
        return Directions({column: self.declared[name] for column, name in names.items() if name in self.declared})

    def known(self, metric: str) -> bool | None:
        """Return whether larger values are better; None where that is not known, or the runs contradict each other."""
        words = self.declared.get(metric, {})
        return None if len(words) > 1 else is_larger_better(metric, {metric: next(iter(words))} if words else {})

    def required(self, metric: str, *, better: str | None = None, shown: str | None = None) -> bool:
        """Return whether larger values are better; `better` is one of `BETTER` and comes first.

        `shown` is what errors call the metric where it was asked for by another name than its own.

        Raises `UsageError` where the runs contradict each other, and where nothing tells.
        """
        found = self.known(metric) if better is None else BETTER[better]
        if found is not None:
            return found
        if words := self._words(metric):
            problem, got = "which the runs declare differently", " and ".join(words)
        else:
            problem, got = "whose name does not tell which is better", "none"
        raise UsageError(fault("--better", f"be max or min for '{shown or metric}', {problem}", got))

    def notes(self) -> list[str]:
        """Describe the metrics of which runs declare both directions, one line each."""
        return [
            f"The runs declare different directions of {metric}: {' and '.join(words)}."
            for metric in self.declared
            if len(words := self._words(metric)) > 1
        ]

    def _words(self, metric: str) -> list[str]:
        return [f"{word} ({run})" for word, run in self.declared.get(metric, {}).items()]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: its `values` by column, None where one is missing.

    `absent_settings` are the columns of the settings that the row's cell does not have. Any other setting without a
    value is set to null. `is_continued`: a finished run with more epochs continues the row's run, or all of its runs.
    """

    values: dict[str, Any]
    absent_settings: Collection[str] = ()
    is_continued: bool = False

    def __getitem__(self, column: str) -> Any:
        return self.values[column]


@dataclass(frozen=True)
class Table:
    """Rows under named columns.

    `settings` are the columns that hold settings; `derived` are those of them whose values follow from others. `seeds`
    are those of the settings that are seeds, also of seeds that are the same in all runs and have no column. `shown`
    are the columns for people, the most important first where the width is limited; files for programs have all
    columns. Shown columns that are empty in every row are left out, unless `shows_empty`. `foreign` are columns of
    numbers that another program measured and named, `logged` those of the metrics and rates that the runs' own programs
    logged; `directions` are those that were declared, by column. `notes` are lines about the whole table, `legend`
    explains its values. `num_unread` counts the runs without a row, whose records cannot be read. `labels` are the
    columns with the tags and notes of people. `metric` is the one that a command for the sweep has asked to rank cells
    by.
    """

    columns: list[str]
    rows: Sequence[Row]
    settings: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()
    directions: Directions = field(default_factory=Directions)
    shown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    legend: str = ""
    shows_empty: bool = False
    num_unread: int = 0
    labels: tuple[str, ...] = ()
    metric: str | None = None


def result_columns(rows: Iterable[Row]) -> list[str]:
    """Return `RESULT_COLUMNS` without those of some runs that no row has."""
    known = {name for row in rows for name in _OF_SOME if row[name] is not None}
    return [name for name in RESULT_COLUMNS if name in known or name not in _OF_SOME]


def column_of(setting: str) -> str:
    """Return the column of a setting: its dotted name, under `settings.` where that is the name of another column."""
    return f"settings.{setting}" if setting in _TAKEN else setting


def setting_name(column: str) -> str:
    """Return the setting of a column, as given in a command: `optimizer` for `optimizer.name`."""
    name = column.removeprefix("settings.")
    return (name if column == column_of(name) else column).removesuffix(".name")


def setting_of(text: str, settings: Container[str]) -> str | None:
    """Return which of the `settings` a text names: by dotted name, by column, or by group (`model` for `model.name`).

    A script's setting may have the dashes of its flag. None for the name of a measured column.
    """
    if text in _MEASURED:
        return None
    setting = text.removeprefix("settings.")
    name = setting if text == column_of(setting) else text
    return next((each for each in (name, f"{name}.name", name.replace("-", "_")) if each in settings), None)


def effect_column(columns: Iterable[str]) -> str:
    """Return the column of a comparison that has the effect."""
    return next(name for name in columns if name in EFFECTS)


_PREFIX = "metrics."


@dataclass(frozen=True)
class LoggedColumns:
    """The columns of metrics by their names, of counts and of rates by their units, each in order of appearance."""

    metrics: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, str] = field(default_factory=dict)
    rates: Mapping[str, str] = field(default_factory=dict)


def rate_name(unit: str) -> str:
    """Return the name of a unit's throughput: `tokens_per_second`."""
    return f"{unit}_per_second"


def logged_columns(metrics: Iterable[str], units: Iterable[str], settings: Iterable[str]) -> LoggedColumns:
    """Return the columns of logged names; a name that a fixed column or a setting has goes under `metrics.`.

    A metric that has the name of a unit's count or rate goes there too. Columns are the same in every table.
    """
    names, of_units = list(dict.fromkeys(metrics)), list(dict.fromkeys(units))
    if not names and not of_units:
        return LoggedColumns()
    taken = {*FIXED_COLUMNS}
    for setting in settings:
        taken |= {setting, column_of(setting)}
    used: set[str] = set()
    counts = {unit: _column(unit, taken, used) for unit in of_units}
    rates = {unit: _column(rate_name(unit), taken, used) for unit in of_units}
    taken |= {*of_units, *map(rate_name, of_units)}
    return LoggedColumns({name: _column(name, taken, used) for name in names}, counts, rates)


def _column(name: str, taken: Container[str], used: set[str]) -> str:
    """Return the column of a name, and add it to the `used` ones.

    If `loss` is taken, `loss` becomes `metrics.loss` and `metrics.loss` becomes `metrics.metrics.loss`, in any order.
    """
    plain = name
    while plain.startswith(_PREFIX):
        plain = plain.removeprefix(_PREFIX)
    column = f"{_PREFIX}{name}" if plain in taken else name
    while column in taken or column in used:
        column = f"{_PREFIX}{column}"
    used.add(column)
    return column
