"""The columns of what programs log: metrics, and counts and throughput of units in addition to samples."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from runmanager.results.table_model.columns import FIXED_COLUMNS, column_of

__all__ = ["LoggedColumns", "logged_columns", "rate_name"]

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
