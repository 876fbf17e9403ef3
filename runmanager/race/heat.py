"""A heat of a race of settings, and the result of each of its values.

Contenders take turns, and are dropped once they are shown to be slower. Half of the error of 5% is for the looks at a
race before its end, each of which may drop contenders: the intervals of all pairs hold together, at all looks. The
other half is for the intervals at its end, which hold together too. So it is where a race ends as soon as it is
settled: it then tends to end when its sessions happen to agree, and intervals of 95% would cover the truth in 85% to
95% of races.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from runmanager.results.stats.descriptive import Estimate, ratio_factor, residuals
from runmanager.results.stats.noise_model import critical_value
from runmanager.results.stats.paired_speedup import MIN_ROUNDS, log_ratios, paired_speedup
from runmanager.validation import fault

Sessions = Sequence[Sequence[Mapping[int, float]]]
"""The rounds of each session: a speed by the key of the contender. Every session has processes of its own."""

_HALVES = 2
_NARROW, _NARROW_SHARE = 0.01, 0.1

LEAST_ROUNDS = 3
"""Fewest rounds that two contenders must share in a session for it to count, and after which a race is looked at.

Also the fewest runs of each in a race of whole runs: two may agree by chance where a load comes and goes.
"""


def race_speedup(
    sessions: Sessions, reference: int, other: int, *, rows: int | None = None, whole_runs: bool = False
) -> Estimate | None:
    """Return how many times as fast as `reference` another contender is, with its 95% interval.

    It is one of the `rows` intervals at the end of a race that was looked at before; None: of a race without looks.
    With `whole_runs` each round is a run of each contender, as a process of its own, and counts by itself. None where
    they have too few rounds in common.
    """
    ratios = [log_ratios(rounds, {reference}, {other}) for rounds in sessions]
    joint = 1 if rows is None else _HALVES * rows
    if whole_runs:
        return _speedup_of_runs([each for found in ratios for each in found], rows=joint)
    # Short sessions are noisier than others, and count only where there is no other.
    least = MIN_ROUNDS if any(len(each) >= MIN_ROUNDS for each in ratios) else LEAST_ROUNDS
    return paired_speedup([each for each in ratios if len(each) >= least], rows=joint)


def beaten(sessions: Sessions, running: Collection[int], *, looks: int, whole_runs: bool = False) -> frozenset[int]:
    """Return those of the contenders still `running` that are shown to be slower than the fastest one.

    `looks` is how often the race is looked at before its end. The interval against the fastest lies wholly below 1.
    """
    if not running:
        return frozenset()
    contenders = {key for rounds in sessions for measured in rounds for key in measured}
    rows = looks * math.comb(max(len(contenders), 2), 2)
    fastest = fastest_of(sessions, running, whole_runs=whole_runs)
    found = set()
    for key in set(running) - {fastest}:
        estimate = race_speedup(sessions, fastest, key, rows=rows, whole_runs=whole_runs)
        if estimate is not None and estimate.high < 1:
            found.add(key)
    return frozenset(found)


def fastest_of(sessions: Sessions, running: Collection[int], *, whole_runs: bool = False) -> int:
    """Return the one with the highest speedup over the first of them, by the estimates that are shown.

    One of which too little was measured counts as equal to the first.
    """
    first, *others = sorted(running)
    found = {key: race_speedup(sessions, first, key, whole_runs=whole_runs) for key in others}
    speeds = {first: 1.0} | {key: 1.0 if each is None else each.value for key, each in found.items()}
    return max(speeds, key=lambda key: speeds[key])


def is_settled(speedup: Estimate | None) -> bool:
    """Whether a speedup is known well enough to stop: within a hundredth, or within a tenth of itself."""
    if speedup is None:
        return False
    return math.log(speedup.high / speedup.value) <= max(_NARROW, _NARROW_SHARE * abs(math.log(speedup.value)))


def _speedup_of_runs(ratios: Sequence[float], *, rows: int) -> Estimate | None:
    if len(ratios) < LEAST_ROUNDS:
        return None
    # By these runs alone: on a busy machine those that agree by chance would else be taken for quiet ones.
    seen, value = residuals(ratios), math.fsum(ratios) / len(ratios)
    error = math.sqrt(seen.squares / seen.dof / len(ratios))
    ratio, factor = math.exp(value), ratio_factor(critical_value(seen.dof, rows) * error)
    return Estimate(ratio, ratio / factor, ratio * factor, error, seen.dof)


LEAST_GAIN = 1.02
"""How many times as fast a value must be to replace another one."""

TAKEN = "taken"
DROPPED = "dropped"

ON_TRIAL = "taken on trial"
"""The result of a value that seems faster by as much, while its interval includes 1: the last heat decides."""

NOT_KNOWN = "not known"
"""The result of a value that may be faster by as much: it does not seem so, or the interval says nothing."""

RESTLESS = 2.0
"""How many times as large as its value the end of an interval is that says nothing."""

_LEAST, _MOST = 0.01, 100  # ratios shown by their digits

TOO_LITTLE_TIME = "too little time"
"""Why a value was not measured, where neither an interrupt nor a failure is the reason."""

INTERRUPTED = "the race was interrupted"

_NOT_MEASURED = "not measured"

Settings = Mapping[str, str]
"""Settings by name, each value as it is typed."""


@dataclass(frozen=True)
class Factor:
    """Settings that are raced together, with their alternatives, and the phases of a step that they can shorten.

    Without `phases` nothing limits its gain.
    """

    name: str
    alternatives: Sequence[Settings]
    phases: Sequence[str] = ()


@dataclass
class Heat:
    """What a race of several settings gave: `estimates` against the first of them, and `failures`, by their position.

    `dropped` are those that were slower than the `fastest` beyond doubt before its end. `shares` are the shares of the
    phases in the time of each. With `is_interrupted` the user has stopped it.
    """

    estimates: Mapping[int, Estimate] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)
    dropped: frozenset[int] = frozenset()
    fastest: int = 0
    shares: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    is_interrupted: bool = False


@dataclass(frozen=True)
class Raced:
    """A value that was raced, against the settings chosen by then; `estimate` is None where it was not measured.

    `result` is `taken`, `taken on trial` (the fastest, but its interval includes 1), `slower`, `dropped` (slower than
    another value), `no gain`, `not known`, `not the fastest`, `failed` or `not measured`; `failure` says why.
    """

    factor: str
    settings: Settings
    estimate: Estimate | None
    result: str
    failure: str = ""


def repetition_faults(name: str, values: Sequence[str]) -> list[str]:
    """Return the faults of a list of values that has one of them twice: it would race against itself."""
    repeated = dict.fromkeys(value for at, value in enumerate(values) if value in values[:at])
    return [fault(name, "have each value once in a race", f"{value} again") for value in repeated]


def is_guess(estimate: Estimate) -> bool:
    """Whether an interval includes 1 and is too wide to say anything."""
    return estimate.low <= 1 and estimate.high > RESTLESS * estimate.value


def ratio_text(value: float) -> str:
    """Format a ratio with two decimals: without digits that say nothing, and rounded to 1 only where it is 1."""
    if value > _MOST:
        return f"over {_MOST}"
    if value < _LEAST:
        return f"under {_LEAST}"
    text = f"{value:.2f}"
    return text if text != "1.00" or value == 1 else f"{value:.4f}"


def label_of(settings: Settings) -> str:
    """Return settings as they are typed."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def results_of(factor: Factor, heat: Heat, taken: int) -> list[Raced]:
    """Return the results of a factor's values, of which the contender `taken` replaces the first; 0: none does."""
    return [
        _raced(factor, each, heat, at, is_taken=at == taken) for at, each in enumerate(factor.alternatives, start=1)
    ]


def _raced(factor: Factor, settings: Settings, heat: Heat, at: int, *, is_taken: bool) -> Raced:
    estimate = heat.estimates.get(at)
    if at in heat.failures:
        return Raced(factor.name, settings, None, "failed", heat.failures[at])
    if estimate is None:
        return Raced(factor.name, settings, None, _NOT_MEASURED, _why_not_measured(heat))
    if is_taken:
        return Raced(factor.name, settings, estimate, TAKEN if estimate.low > 1 else ON_TRIAL)
    return Raced(factor.name, settings, estimate, _result(estimate, at in heat.dropped))


def _why_not_measured(heat: Heat) -> str:
    if 0 in heat.failures:
        return f"the settings that it was raced against failed: {heat.failures[0]}"
    return INTERRUPTED if heat.is_interrupted else TOO_LITTLE_TIME


def _result(estimate: Estimate, is_dropped: bool) -> str:
    if estimate.high < 1:
        return "slower"
    if is_dropped:
        return DROPPED
    if is_guess(estimate):
        return NOT_KNOWN
    if estimate.value >= LEAST_GAIN:
        return "not the fastest"
    return "no gain" if estimate.high <= LEAST_GAIN else NOT_KNOWN


def line_of(raced: Raced) -> str:
    """Return what is said of a value after its heat."""
    if raced.estimate is None:
        return f"{raced.factor}: {label_of(raced.settings)} {raced.result}" + (
            f": {raced.failure}" if raced.failure else ""
        )
    each = raced.estimate
    return (
        f"{raced.factor}: {label_of(raced.settings)} is {ratio_text(each.value)} times as fast "
        f"[{ratio_text(each.low)}, {ratio_text(each.high)}], {raced.result}"
    )
