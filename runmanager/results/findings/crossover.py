"""The crossover: from which value of a numeric axis, or which number of parameters, one side overtakes the other."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from runmanager.errors import UsageError
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable
from runmanager.results.compare.matching import Match, Matches
from runmanager.results.compare.verdict import NOT_MEASURED
from runmanager.results.model.columns import setting_name
from runmanager.results.model.formatting import number
from runmanager.results.stats.curve_crossing import Crossing, CurvePoint, find_crossings
from runmanager.results.stats.descriptive import median
from runmanager.text import format_value

__all__ = [
    *("NUM_PARAMETERS", "Crossover"),
    *("crossover_answers", "crossover_lines", "crossovers", "notable_crossovers"),
    "skipped_crossover_notes",
]

NUM_PARAMETERS = "num_parameters"
_MOST_UNASKED = 6  # pairs of curves along an axis: nobody reads more lines
_AHEAD = {"faster": 1, "better": 1, "slower": -1, "worse": -1}


@dataclass(frozen=True)
class Crossover:
    """Two curves of a metric along `along`, and where they cross; `labels` are the sides' names, baseline first.

    `points` are the measured values in ascending order, with what the comparison says of them; `curves` are the two
    sides' metric there. `settings` tell this pair of curves from others.
    """

    along: str
    metric: str
    labels: tuple[str, str]
    settings: Mapping[str, Any]
    points: tuple[CurvePoint, ...]
    curves: tuple[tuple[float, ...], tuple[float, ...]]
    crossings: tuple[Crossing, ...]

    @property
    def xs(self) -> tuple[float, ...]:
        return tuple(point.x for point in self.points)

    @property
    def is_too_close(self) -> bool:
        """Whether it cannot be told anywhere which side is ahead."""
        return not any(point.ahead for point in self.points)

    @property
    def first_leader(self) -> str:
        """The side that is ahead at the first point where one surely is."""
        return self.labels[next(point.ahead for point in self.points if point.ahead) > 0]

    @property
    def second_leader(self) -> str:
        """The other side, which overtakes the first one where the curves cross."""
        return self.labels[self.labels[0] == self.first_leader]


def crossovers(
    matches: Matches, comparison: ComparisonTable, along: str, *, most: int | None = None
) -> list[Crossover]:
    """A crossover for each candidate and each choice of the other settings that was measured at two values at least.

    `comparison` has the rows of `matches`, in their order. Where `most` is given, only the first so many choices are
    looked at, in the order of the sweep's plan. Pairs along an axis that stands in for another are left out.

    Raises `UsageError` for an axis that the sweep lacks or whose values are not numbers above 0, and for a metric whose
    sides are compared by their difference.
    """
    if matches.metric.effect == "difference":
        raise UsageError(f"`--crossover` must go with a metric of ratios, got {matches.metric.name}; leave one out.")
    asked = matches.without_stand_in()
    names = _names(asked, along)
    varying = [name for name in asked.cells.varying if name not in names]
    groups = _groups(matches, comparison, along)[:most]
    found = [_crossover(asked.metric.name, along, group, varying) for group in groups]
    return [each for each in found if each is not None]


@dataclass(frozen=True)
class _Place:
    """A measured pair at one value of the axis."""

    x: float
    match: Match
    row: ComparisonRow


def _groups(matches: Matches, comparison: ComparisonTable, along: str) -> list[list[_Place]]:
    """The measured pairs of each pair of curves, with their places along the axis."""
    names = _names(matches.without_stand_in(), along)
    groups: dict[str, list[_Place]] = {}
    for match, row in zip(matches.pairs, comparison.rows, strict=True):
        if matches.is_stand_in(match) or row["verdict"] == NOT_MEASURED:
            continue
        others = {name: value for name, value in match.settings.items() if name not in names}
        x = _value(match, along)
        if x is not None:
            key = json.dumps([match.axis.name, match.values, others], sort_keys=True, default=str)
            groups.setdefault(key, []).append(_Place(x, match, row))
    return list(groups.values())


def notable_crossovers(matches: Matches, comparison: ComparisonTable) -> list[Crossover]:
    """Without being asked: what there is along the number of parameters, and crossings along any other numeric axis.

    Along each, the first `_MOST_UNASKED` choices of the other settings are looked at.
    """
    if matches.metric.effect == "difference":
        return []
    asked = matches.without_stand_in()
    by_parameters = crossovers(matches, comparison, NUM_PARAMETERS, most=_MOST_UNASKED)
    # Where the parameters grow along an axis, both have the same crossings.
    said = _moved_by_parameters(asked) if by_parameters else frozenset[str]()
    others = [
        each
        for name in _numeric_axes(asked)
        if name not in said
        for each in crossovers(matches, comparison, name, most=_MOST_UNASKED)
    ]
    return [*by_parameters, *(each for each in others if each.crossings)]


def skipped_crossover_notes(matches: Matches, comparison: ComparisonTable) -> list[str]:
    """What `notable_crossovers` did not look at, a sentence an axis: crossings there are not known."""
    if matches.metric.effect == "difference":
        return []
    axes = _numeric_axes(matches.without_stand_in())
    counts = {axis: len(_groups(matches, comparison, axis)) for axis in axes}
    return [
        f"Crossings along {axis} were looked for in {_MOST_UNASKED} of {count} pairs of curves; "
        f"`--crossover {axis}` looks at all."
        for axis, count in counts.items()
        if count > _MOST_UNASKED
    ]


def _numeric_axes(matches: Matches) -> list[str]:
    return [name for name in matches.names if name in matches.cells.varying and _is_numeric(matches, name)]


def crossover_answers(matches: Matches, comparison: ComparisonTable, along: str) -> list[str]:
    """The sentences for an axis that was asked for, one at least. Raises as `crossovers` does."""
    found = crossovers(matches, comparison, along)
    if not found:
        return [f"No crossover along {along}: no two sides were both measured at two of its values."]
    return crossover_lines(found)


def crossover_lines(found: Iterable[Crossover]) -> list[str]:
    """A readable sentence for each."""
    return [_line(each) for each in found]


def _names(matches: Matches, along: str) -> frozenset[str]:
    """The settings that change along the axis, so that they are not held equal."""
    if along == NUM_PARAMETERS:
        return _moved_by_parameters(matches)
    if along not in matches.names:
        known = ", ".join(name for name in matches.names if name in matches.cells.varying)
        raise UsageError(
            f"`--crossover` must be {NUM_PARAMETERS} or a numeric setting that is not compared itself, got '{along}'; "
            f"what varies here: {known or 'nothing'}."
        )
    if not _is_numeric(matches, along):
        raise UsageError(f"`--crossover` must be an axis of numbers above 0, got '{along}'; its values are others.")
    return frozenset({along})


def _is_numeric(matches: Matches, name: str) -> bool:
    values = [match.settings.get(name) for match in matches.pairs]
    return bool(values) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values
    )


def _moved_by_parameters(matches: Matches) -> frozenset[str]:
    """The settings that alone change the number of parameters: those of the model, whatever they are called."""
    varying = [name for name in matches.names if name in matches.cells.varying]
    known = [(match.settings, _value(match, NUM_PARAMETERS)) for match in matches.pairs]
    moving = set()
    for name in varying:
        counts: dict[str, set[float]] = {}
        for settings, count in known:
            if count is not None:
                rest = json.dumps([settings.get(each) for each in varying if each != name], default=str)
                counts.setdefault(rest, set()).add(count)
        if any(len(each) > 1 for each in counts.values()):
            moving.add(name)
    return frozenset(moving)


def _value(match: Match, along: str) -> float | None:
    """Where a pair stands on the axis; None where that is not known, or not the same for both sides."""
    if along != NUM_PARAMETERS:
        return float(match.settings[along])
    counts = {run.record.num_parameters for side in match.sides for run in side.finished}
    count = counts.pop() if len(counts) == 1 else None
    return float(count) if count else None


def _crossover(metric: str, along: str, group: Sequence[_Place], varying: Sequence[str]) -> Crossover | None:
    by_x: dict[float, list[_Place]] = {}
    for place in sorted(group, key=lambda place: place.x):
        by_x.setdefault(place.x, []).append(place)
    if len(by_x) < 2:
        return None
    points = tuple(_point(x, places) for x, places in by_x.items())
    first = group[0].match
    baseline, candidate = (side.label for side in first.sides)
    curves = tuple(tuple(_typical(places, at) for places in by_x.values()) for at in (0, 1))
    return Crossover(
        along=along,
        metric=metric,
        labels=(baseline, candidate),
        settings={name: first.settings[name] for name in varying if name in first.settings},
        points=points,
        curves=(curves[0], curves[1]),
        crossings=tuple(find_crossings(points)),
    )


def _typical(places: Sequence[_Place], at: int) -> float:
    """The geometric mean over a side's runs of each run's median; two pairs may stand at one place of the axis."""
    runs = [run for place in places for run in place.match.sides[at].values]
    logs = [math.log(value) for run in runs if (value := median(run))]
    return math.exp(math.fsum(logs) / len(logs))


def _point(x: float, places: Sequence[_Place]) -> CurvePoint:
    """What the rows at one place come to: a side is ahead where a row says so, and none says otherwise."""
    metric = places[0].match.sides[0].metric
    logs = [math.log(place.row[metric.effect]) for place in places]
    sign = 1 if metric.effect == "speedup" or metric.more_is_better else -1
    said = {_AHEAD[place.row["verdict"]] for place in places if place.row["verdict"] in _AHEAD}
    return CurvePoint(x, sign * math.fsum(logs) / len(logs), said.pop() if len(said) == 1 else 0)


def _line(found: Crossover) -> str:
    where = ", ".join(f"{setting_name(name)}={format_value(value)}" for name, value in found.settings.items())
    at = f" ({where})" if where else ""
    first, last = _measured(found.xs[0]), _measured(found.xs[-1])
    within = f"the measured range of {found.along}, {first} to {last}"
    if found.is_too_close:
        return f"{found.labels[1]} and {found.labels[0]}{at} are too close to tell which is ahead within {within}."
    if found.crossings:
        return f"{_crossed(found, at)}, measured from {first} to {last}."
    line = f"No crossover of {found.labels[1]} and {found.labels[0]}{at} within {within}: {found.first_leader} is ahead"
    sure = sum(point.ahead != 0 for point in found.points)
    if sure == len(found.points):
        return f"{line} throughout."
    return f"{line} at {sure} of {len(found.points)} values; at the others the two are too close to tell."


def _crossed(found: Crossover, at: str) -> str:
    """Where the second leader is ahead: from one place on, or in ranges."""
    places = [f"{number(each.at)} [{_measured(each.low)}, {_measured(each.high)}]" for each in found.crossings]
    if len(places) == 1:
        return f"{found.second_leader} overtakes {found.first_leader}{at} at {found.along} = {places[0]}"
    ranges = [
        f"from {start} to {end}" if end else f"from {start} on" for start, end in zip_longest(places[::2], places[1::2])
    ]
    return f"{found.second_leader} is ahead of {found.first_leader}{at} along {found.along} {' and '.join(ranges)}"


def _measured(value: float) -> str:
    """A measured value of the axis, in full."""
    return f"{value:,.15g}"
