"""The crossover: from which value of a numeric axis, or which number of parameters, one side overtakes the other."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.spoken import spoken
from runmanager.results.columns import setting_name
from runmanager.results.crossing import CurvePoint, find_crossing
from runmanager.results.figures.words import number
from runmanager.results.judging import obstacles, tolerance_of
from runmanager.results.matching import Match, Matches
from runmanager.results.options import CompareOptions
from runmanager.results.statistics import median

__all__ = [
    *("NUM_PARAMETERS", "Crossover"),
    *("crossing_answers", "crossover_lines", "crossovers", "crossovers_worth_saying"),
    "unlooked_lines",
]

NUM_PARAMETERS = "num_parameters"
_MOST_UNASKED = 6  # pairs of curves along an axis: nobody reads more lines, and each costs tens of milliseconds


@dataclass(frozen=True)
class Crossover:
    """Where two curves of a metric cross along `along`; `labels` are the sides' names, baseline first.

    `xs` are the measured values in ascending order, `curves` the two sides' metric there. From `at` on `leader` is
    ahead; None is no crossing within the measured range, where `leader` is ahead throughout. The 95% interval of the
    crossing reaches from `low` to `high`, which are infinite where it leaves the measured range. `settings` tell this
    pair of curves from others.
    """

    along: str
    metric: str
    labels: tuple[str, str]
    settings: Mapping[str, Any]
    xs: tuple[float, ...]
    curves: tuple[tuple[float, ...], tuple[float, ...]]
    leader: str
    at: float | None
    low: float
    high: float

    @property
    def is_too_close(self) -> bool:
        """Whether either side may be ahead throughout the measured range."""
        return math.isinf(self.low) and math.isinf(self.high) and self.low < self.high

    @property
    def follower(self) -> str:
        return self.labels[self.labels[0] == self.leader]


def crossovers(matches: Matches, along: str, options: CompareOptions, *, most: int | None = None) -> list[Crossover]:
    """A crossover for each candidate and each choice of the other settings that was measured at two values at least.

    Where `most` is given, only of the first so many choices, in the order of the sweep's plan.

    Raises `UsageError` for an axis that the sweep lacks or whose values are no numbers above 0, and for a metric whose
    sides are held against each other by their difference.
    """
    if matches.metric.effect == "difference":
        raise UsageError(f"`--crossover` must go with a metric of ratios, got {matches.metric.name}; leave one out.")
    names = _names(matches, along)
    varying = [name for name in matches.cells.varying if name not in names]
    groups = _groups(matches, along, options)[:most]
    found = [_crossover(matches.metric.name, along, group, varying, options) for group in groups]
    return [each for each in found if each is not None]


def _groups(matches: Matches, along: str, options: CompareOptions) -> list[list[tuple[float, Match]]]:
    """The matches of each pair of curves, with their places along the axis."""
    names = _names(matches, along)
    groups: dict[str, list[tuple[float, Match]]] = {}
    for match in matches.pairs:
        others = {name: value for name, value in match.settings.items() if name not in names}
        x = _value(match, along)
        if x is not None and not obstacles(match.sides, options):
            key = json.dumps([match.axis.name, match.values, others], sort_keys=True, default=str)
            groups.setdefault(key, []).append((x, match))
    return list(groups.values())


def crossovers_worth_saying(matches: Matches, options: CompareOptions) -> list[Crossover]:
    """Without being asked: what there is along the number of parameters, and crossings along any other numeric axis.

    Along each, the first `_MOST_UNASKED` choices of the other settings are looked at. Of an axis that stands in for
    another nothing is said: nobody asked who is ahead.
    """
    matches = matches.without_stand_in()
    if matches.metric.effect == "difference":
        return []
    axes = _numeric_axes(matches)
    by_parameters = crossovers(matches, NUM_PARAMETERS, options, most=_MOST_UNASKED)
    # Where the parameters grow along an axis, both tell of the same crossing.
    said = _moved_by_parameters(matches) if by_parameters else frozenset[str]()
    others = [
        each for name in axes if name not in said for each in crossovers(matches, name, options, most=_MOST_UNASKED)
    ]
    return [*by_parameters, *(each for each in others if each.at is not None and not each.is_too_close)]


def unlooked_lines(matches: Matches, options: CompareOptions) -> list[str]:
    """What `crossovers_worth_saying` did not look at, a sentence an axis: no crossing told is not none there."""
    matches = matches.without_stand_in()
    if matches.metric.effect == "difference":
        return []
    counts = {axis: len(_groups(matches, axis, options)) for axis in _numeric_axes(matches)}
    return [
        f"Crossings along {axis} were looked for in {_MOST_UNASKED} of {count} pairs of curves; "
        f"`--crossover {axis}` looks at all."
        for axis, count in counts.items()
        if count > _MOST_UNASKED
    ]


def _numeric_axes(matches: Matches) -> list[str]:
    return [name for name in matches.names if name in matches.cells.varying and _is_numeric(matches, name)]


def crossing_answers(matches: Matches, along: str, options: CompareOptions) -> list[str]:
    """The sentences for an axis that was asked for, which never say nothing. Raises as `crossovers` does."""
    found = crossovers(matches.without_stand_in(), along, options)
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


def _crossover(
    metric: str, along: str, group: Sequence[tuple[float, Match]], varying: Sequence[str], options: CompareOptions
) -> Crossover | None:
    by_x: dict[float, list[Match]] = {}
    for x, match in sorted(group, key=lambda pair: pair[0]):
        by_x.setdefault(x, []).append(match)
    if len(by_x) < 2:
        return None
    crossing = find_crossing(tuple(_point(x, matches, options) for x, matches in by_x.items()))
    first = group[0][1]
    baseline, candidate = (side.label for side in first.sides)
    curves = tuple(tuple(_typical(matches, at) for matches in by_x.values()) for at in (0, 1))
    shown = {name: first.settings[name] for name in varying if name in first.settings}
    return Crossover(
        along=along,
        metric=metric,
        labels=(baseline, candidate),
        settings=shown,
        xs=tuple(by_x),
        curves=(curves[0], curves[1]),
        leader=candidate if crossing.candidate_leads else baseline,
        at=crossing.at,
        low=crossing.low,
        high=crossing.high,
    )


def _runs(matches: Sequence[Match], at: int) -> list[list[float]]:
    """The values of one side's runs; two pairs may stand at one place of the axis."""
    return [run for match in matches for run in match.sides[at].values]


def _typical(matches: Sequence[Match], at: int) -> float:
    """The geometric mean over a side's runs of each run's median."""
    logs = [math.log(value) for run in _runs(matches, at) if (value := median(run))]
    return math.exp(math.fsum(logs) / len(logs))


def _point(x: float, matches: Sequence[Match], options: CompareOptions) -> CurvePoint:
    metric = matches[0].sides[0].metric
    logs = [[[math.log(metric.weighed(value)) for value in run] for run in _runs(matches, at)] for at in (0, 1)]
    tolerance = max(tolerance_of(match.sides, options)[0] for match in matches)
    return CurvePoint.of(x, logs[0], logs[1], tolerance=math.log1p(tolerance))


def _line(found: Crossover) -> str:
    where = ", ".join(f"{setting_name(name)}={spoken(value)}" for name, value in found.settings.items())
    at = f" ({where})" if where else ""
    first, last = number(found.xs[0]), number(found.xs[-1])
    interval = f"[{_end(found.low, found)}, {_end(found.high, found)}]"
    measured = f"the measured range of {found.along}, {first} to {last}"
    if found.is_too_close:
        return f"{found.labels[1]} and {found.labels[0]}{at} are too close to tell which is ahead within {measured}."
    if found.at is not None:
        said = f"{found.leader} overtakes {found.follower}{at} at {found.along} = {number(found.at)} {interval}"
        return f"{said}, measured from {first} to {last}."
    line = f"No crossover of {found.labels[1]} and {found.labels[0]}{at} within {measured}: {found.leader} is ahead"
    if math.isinf(found.low) and math.isinf(found.high):
        return f"{line} throughout."
    near = f"below {number(found.high)}" if math.isinf(found.low) else f"above {number(found.low)}"
    return f"{line}, though {near} the two are too close to tell."


def _end(value: float, found: Crossover) -> str:
    if math.isinf(value):
        return f"below {number(found.xs[0])}" if value < 0 else f"above {number(found.xs[-1])}"
    return number(value)
