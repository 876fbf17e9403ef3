"""Crossovers: the value of a numeric axis, or number of parameters, from which one side overtakes the other."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

from runmanager.errors import UsageError
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable
from runmanager.results.compare.matched_pairs import Match, Matches
from runmanager.results.compare.verdict import AHEAD, BEHIND, NOT_MEASURED
from runmanager.results.metrics.metric import BATCH_SIZE, inference_metric
from runmanager.results.stats.descriptive import median
from runmanager.results.table_model.columns import setting_name
from runmanager.results.table_model.formatting import number
from runmanager.text import format_value

_NUM_PARAMETERS = "num_parameters"
_MAX_UNREQUESTED = 6  # pairs of curves along an axis: more lines are not useful
_AHEAD = dict.fromkeys(AHEAD, 1) | dict.fromkeys(BEHIND, -1)


@dataclass(frozen=True)
class CurvePoint:
    """The two curves at one value `x` > 0: the log ratio by which the candidate is ahead, and its significance.

    `ahead` is 1 where the candidate is significantly ahead, -1 where the baseline is, and 0 where neither is.
    """

    x: float
    log_ratio: float
    ahead: int


@dataclass(frozen=True)
class Crossing:
    """A crossing between the measured points `low` and `high`, estimated at `at`.

    `candidate_leads` is whether the candidate is ahead after it.
    """

    at: float
    low: float
    high: float
    candidate_leads: bool


def find_crossings(points: Sequence[CurvePoint]) -> list[Crossing]:
    """Return the crossings of two curves; `points`, and the crossings, are in ascending order of `x`.

    A crossing lies between a point where one side is significantly ahead and the next point where the other side is.
    Points where neither is ahead prove no crossing, and no crossing is assumed beyond the last significant point. The
    interval reaches from the one point to the other: the curves between them were not measured. It therefore contains
    the crossing whenever the verdicts on the two points are true. Simultaneous 95% intervals of the points thus give
    simultaneous 95% intervals of all crossings.
    """
    significant = [index for index, point in enumerate(points) if point.ahead]
    return [
        _crossing_between(points[left : right + 1])
        for left, right in pairwise(significant)
        if points[left].ahead != points[right].ahead
    ]


def _crossing_between(points: Sequence[CurvePoint]) -> Crossing:
    """Return the crossing between the first and the last of `points`, which are on different sides.

    The estimate interpolates the log ratio linearly over log x. Where noise makes the lines cross several times, the
    estimate leaves the same share of the range ahead as the lines do in total.
    """
    first, last = points[0], points[-1]
    after = math.fsum(
        math.log(right.x / left.x) * _share_below(first.ahead * left.log_ratio, first.ahead * right.log_ratio)
        for left, right in pairwise(points)
    )
    return Crossing(last.x / math.exp(after), first.x, last.x, last.ahead > 0)


def _share_below(left: float, right: float) -> float:
    """Return the share of a straight line from `left` to `right` that lies below 0."""
    if (left < 0) == (right < 0):
        return float(left < 0)
    return max(-left, -right) / abs(right - left)


@dataclass(frozen=True)
class Crossover:
    """Two curves of a metric along an axis, and where they cross; `labels` are the sides' names, baseline first.

    `points` are the measured values in ascending order, with the verdicts on them; `curves` are the two sides' metric
    there. `settings` distinguish this pair of curves from others.
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
        """Whether neither side is significantly ahead at any point."""
        return not any(point.ahead for point in self.points)

    @property
    def first_leader(self) -> str:
        """The side that is ahead at the first significant point."""
        return self.labels[next(point.ahead for point in self.points if point.ahead) > 0]

    @property
    def second_leader(self) -> str:
        """The other side, which overtakes the first one where the curves cross."""
        return self.labels[self.labels[0] == self.first_leader]


def crossovers(
    matches: Matches, comparison: ComparisonTable, along: str, *, most: int | None = None
) -> list[Crossover]:
    """Return a crossover for each candidate and each choice of the other settings with at least two measured values.

    `comparison` has the rows of `matches`, in their order. `most` limits the choices that are searched, in the order of
    the sweep's plan. Pairs along a stand-in axis are left out.

    Raises `UsageError` for an axis that the sweep lacks or whose values are not numbers above 0, and for a metric whose
    sides are compared by their difference.
    """
    if matches.metric.effect == "difference":
        raise UsageError(f"`--crossover` must go with a metric of ratios, got {matches.metric.name}; leave one out.")
    requested = matches.without_stand_in()
    names = _axis_settings(requested, along)
    varying = [name for name in requested.varying if name not in names]
    groups = _groups(matches, comparison, along)[:most]
    found = [_crossover(requested.metric.name, along, group, varying) for group in groups]
    return [each for each in found if each is not None]


@dataclass(frozen=True)
class _Point:
    """A measured pair at the value `x` of the axis."""

    x: float
    match: Match
    row: ComparisonRow


def _groups(matches: Matches, comparison: ComparisonTable, along: str) -> list[list[_Point]]:
    """Group the measured pairs by pair of curves, with their values along the axis."""
    names = _axis_settings(matches.without_stand_in(), along)
    groups: dict[str, list[_Point]] = {}
    for match, row in zip(matches.pairs, comparison.rows, strict=True):
        if matches.is_stand_in(match) or row["verdict"] == NOT_MEASURED:
            continue
        others = {name: value for name, value in match.settings.items() if name not in names}
        x = _value(match, along)
        if x is not None:
            key = json.dumps([match.axis.name, match.values, others], sort_keys=True, default=str)
            groups.setdefault(key, []).append(_Point(x, match, row))
    return list(groups.values())


def notable_crossovers(matches: Matches, comparison: ComparisonTable) -> list[Crossover]:
    """Return the crossovers worth showing: along the number of parameters, and crossings along other numeric axes.

    Along each axis, only the first `_MAX_UNREQUESTED` choices of the other settings are searched.
    """
    if matches.metric.effect == "difference":
        return []
    requested = matches.without_stand_in()
    by_parameters = crossovers(matches, comparison, _NUM_PARAMETERS, most=_MAX_UNREQUESTED)
    # Where the parameters grow along an axis, both have the same crossings.
    model_settings = _model_settings(requested) if by_parameters else frozenset[str]()
    others = [
        each
        for name in _numeric_axes(requested)
        if name not in model_settings
        for each in crossovers(matches, comparison, name, most=_MAX_UNREQUESTED)
    ]
    return [*by_parameters, *(each for each in others if each.crossings)]


def skipped_crossover_notes(matches: Matches, comparison: ComparisonTable) -> list[str]:
    """Name the axes along which `notable_crossovers` did not search all pairs of curves, a sentence each."""
    if matches.metric.effect == "difference":
        return []
    axes = _numeric_axes(matches.without_stand_in())
    counts = {axis: len(_groups(matches, comparison, axis)) for axis in axes}
    return [
        f"Crossings along {axis} were looked for in {_MAX_UNREQUESTED} of {count} pairs of curves; "
        f"`--crossover {axis}` searches all."
        for axis, count in counts.items()
        if count > _MAX_UNREQUESTED
    ]


def _numeric_axes(matches: Matches) -> list[str]:
    return [name for name in matches.names if name in matches.varying and _is_numeric(matches, name)]


def crossover_answers(matches: Matches, comparison: ComparisonTable, along: str) -> list[str]:
    """Describe the crossovers along a requested axis, in at least one sentence. Raises as `crossovers` does."""
    found = crossovers(matches, comparison, along)
    if not found:
        return [f"No crossover along {along}: no two sides were both measured at two of its values."]
    return crossover_lines(found)


def crossover_lines(found: Iterable[Crossover]) -> list[str]:
    """Describe each crossover in a sentence."""
    return [_line(each) for each in found]


def _axis_settings(matches: Matches, along: str) -> frozenset[str]:
    """Return the settings that change along the axis, so that they are not held equal."""
    if along == _NUM_PARAMETERS:
        return _model_settings(matches)
    if along not in matches.names:
        if along == BATCH_SIZE and inference_metric(matches.metric.name) is None:
            raise UsageError(
                f"`--crossover {along}` must go with a metric of inference, got {matches.metric.name}; add "
                "`--metric latency_p50_seconds`."
            )
        if along == BATCH_SIZE:
            raise UsageError(
                f"`--crossover {along}` must go with two sides whose inference was measured, got none; "
                "`--axis` names what is compared."
            )
        known = ", ".join(name for name in matches.names if name in matches.varying)
        raise UsageError(
            f"`--crossover` must be {_NUM_PARAMETERS} or a numeric setting that is not compared itself, got '{along}'; "
            f"what varies here: {known or 'nothing'}."
        )
    if matches.pairs and not _is_numeric(matches, along):
        raise UsageError(f"`--crossover` must be an axis of numbers above 0, got '{along}'; its values are others.")
    return frozenset({along})


def _is_numeric(matches: Matches, name: str) -> bool:
    values = [match.settings.get(name) for match in matches.pairs]
    return bool(values) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values
    )


def _model_settings(matches: Matches) -> frozenset[str]:
    """Return the settings that change the number of parameters by themselves: those of the model, under any name."""
    varying = [name for name in matches.names if name in matches.varying]
    known = [(match.settings, _value(match, _NUM_PARAMETERS)) for match in matches.pairs]
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
    """Return the value of a pair along the axis; None where it is unknown, or differs between the sides."""
    if along != _NUM_PARAMETERS:
        return float(match.settings[along])
    counts = {run.record.num_parameters for side in match.sides for run in side.finished}
    count = counts.pop() if len(counts) == 1 else None
    return float(count) if count else None


def _crossover(metric: str, along: str, group: Sequence[_Point], varying: Sequence[str]) -> Crossover | None:
    by_x: dict[float, list[_Point]] = {}
    for point in sorted(group, key=lambda point: point.x):
        by_x.setdefault(point.x, []).append(point)
    if len(by_x) < 2:
        return None
    points = tuple(_curve_point(x, pairs) for x, pairs in by_x.items())
    first = group[0].match
    baseline, candidate = (side.label for side in first.sides)
    curves = tuple(tuple(_typical(pairs, side) for pairs in by_x.values()) for side in (0, 1))
    return Crossover(
        along=along,
        metric=metric,
        labels=(baseline, candidate),
        settings={name: first.settings[name] for name in varying if name in first.settings},
        points=points,
        curves=(curves[0], curves[1]),
        crossings=tuple(find_crossings(points)),
    )


def _typical(pairs: Sequence[_Point], side: int) -> float:
    """Return the geometric mean over a side's runs of each run's median; several pairs may have one value of `x`."""
    runs = [run for pair in pairs for run in pair.match.sides[side].values]
    logs = [math.log(value) for run in runs if (value := median(run))]
    return math.exp(math.fsum(logs) / len(logs))


def _curve_point(x: float, pairs: Sequence[_Point]) -> CurvePoint:
    """Combine the pairs at one value of `x`: a side is ahead where a verdict shows it and none contradicts."""
    metric = pairs[0].match.sides[0].metric
    logs = [math.log(pair.row[metric.effect]) for pair in pairs]
    sign = 1 if metric.effect == "speedup" or metric.more_is_better else -1
    ahead = {_AHEAD[pair.row["verdict"]] for pair in pairs if pair.row["verdict"] in _AHEAD}
    return CurvePoint(x, sign * math.fsum(logs) / len(logs), ahead.pop() if len(ahead) == 1 else 0)


def _line(found: Crossover) -> str:
    settings = ", ".join(f"{setting_name(name)}={format_value(value)}" for name, value in found.settings.items())
    where = f" ({settings})" if settings else ""
    first, last = _measured(found.xs[0]), _measured(found.xs[-1])
    within = f"the measured range of {found.along}, {first} to {last}"
    if found.is_too_close:
        return f"{found.labels[1]} and {found.labels[0]}{where} are too close to tell which is ahead within {within}."
    if found.crossings:
        return f"{_crossed(found, where)}, measured from {first} to {last}."
    line = (
        f"No crossover of {found.labels[1]} and {found.labels[0]}{where} within {within}: {found.first_leader} is ahead"
    )
    num_significant = sum(point.ahead != 0 for point in found.points)
    if num_significant == len(found.points):
        return f"{line} throughout."
    return f"{line} at {num_significant} of {len(found.points)} values; at the others the two are too close to tell."


def _crossed(found: Crossover, where: str) -> str:
    """Describe where the second leader is ahead: from one value on, or in ranges."""
    values = [f"{number(each.at)} [{_measured(each.low)}, {_measured(each.high)}]" for each in found.crossings]
    if len(values) == 1:
        return f"{found.second_leader} overtakes {found.first_leader}{where} at {found.along} = {values[0]}"
    ranges = [
        f"from {start} to {end}" if end else f"from {start} on" for start, end in zip_longest(values[::2], values[1::2])
    ]
    return f"{found.second_leader} is ahead of {found.first_leader}{where} along {found.along} {' and '.join(ranges)}"


def _measured(value: float) -> str:
    """Format a measured value of the axis in full."""
    return f"{value:,.15g}"
