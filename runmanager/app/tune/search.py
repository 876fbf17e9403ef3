"""The search for the fastest settings: one factor after another, each raced against the best settings so far.

```
factor     its values race against the settings so far, in paired turns; losers are dropped on the way
taken      the fastest, if it is faster by two hundredths or more; the next factor begins with it
again      factors that were raced before another one changed are raced once more, while there is time
spare      where none was taken, the time of the last heat goes to factors without a race, or without a result
last       the settings found against the given ones, in new processes: the gain, which no choice flatters
```
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runmanager.results.stats.descriptive import Estimate

__all__ = [
    "LEAST_GAIN",
    "NOT_KNOWN",
    "ON_TRIAL",
    "Factor",
    "Heat",
    "Raced",
    "Search",
    "Space",
    "Track",
    "Tuning",
    "label_of",
]

_LAST_SHARE = 0.3  # of the time is kept for the last heat
_LEAST_SHARE = 0.03  # of a step's time: what takes less cannot gain more
_MAX_PASSES = 2
_MARGIN = 1.25  # of the seconds that should do: processes do not start equally fast each time
_ROUNDED_TO = 10  # seconds
_NOT_MEASURED = "not measured"
_NO_TIME = "no time was left"
_INTERRUPTED = "the race was interrupted"

LEAST_GAIN = 1.02
"""How many times as fast a value must be to replace another one."""

ON_TRIAL = "taken on trial"
"""The result of a value that seems faster by as much, while its interval includes 1: the last heat decides."""

NOT_KNOWN = "not known"
"""The result of a value that does not seem faster by as much, while its interval says that it may be."""

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


class Track(Protocol):
    """Where settings race."""

    def race(self, contenders: Sequence[Settings], *, seconds: float, is_last: bool = False) -> Heat:
        """Race the contenders, given by what they change, for about as many seconds; `is_last` is the gain's heat."""
        ...

    def needed(self, count: int) -> float:
        """Return the seconds that a heat of `count` contenders needs at least."""
        ...


class Space(Protocol):
    """The factors of a program."""

    def factors(self, chosen: Settings) -> tuple[Sequence[Factor], Mapping[str, str]]:
        """Return what can be raced where `chosen` is set, and why other factors are not raced, by their names."""
        ...

    def changes(self, chosen: Settings) -> dict[str, str]:
        """Return those of the settings that differ from the given ones."""
        ...


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


@dataclass
class Tuning:
    """What a search has found: the settings `chosen`, their `gain` over the given ones, and every raced value.

    `gain` is None where nothing was found, or was not measured. `not_raced` says why factors were not. `broken` says
    how the given settings failed, where they did. `enough_seconds` should do to race all settings; None where the
    seconds given did.
    """

    chosen: dict[str, str] = field(default_factory=dict)
    gain: Estimate | None = None
    raced: list[Raced] = field(default_factory=list)
    not_raced: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    is_interrupted: bool = False
    broken: str = ""
    enough_seconds: int | None = None


class Search:
    """Searches a space on a track within `seconds`, which count from `began`; `say` is called with a line a heat."""

    def __init__(
        self,
        space: Space,
        track: Track,
        *,
        seconds: float,
        began: float,
        shares: Mapping[str, float],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._space = space
        self._track = track
        self._seconds = seconds
        self._began = began
        self._shares = dict(shares)
        self._say = say
        self._clock = clock
        self._raced_with: dict[str, dict[str, str]] = {}
        self._num_heats: dict[str, int] = {}
        self._before_heats = clock() - began
        self.found = Tuning()

    def run(self) -> Tuning:
        """Search until nothing is left to race or the time is up. After an interrupt, return what is known."""
        found = self.found
        try:
            while not found.is_interrupted and (factor := self._next_factor()) is not None:
                self._race(factor, self._slice(factor))
            while not (found.is_interrupted or found.chosen) and (spare := self._next_in_spare_time()) is not None:
                self._race(*spare)
            found.chosen = self._space.changes(found.chosen)
            if found.chosen and not found.is_interrupted:
                self._measure_gain()
        except KeyboardInterrupt:
            found.is_interrupted = True
            found.chosen = self._space.changes(found.chosen)
        if found.is_interrupted:
            self._name_what_was_left()
        else:
            found.enough_seconds = self._enough_seconds()
        found.seconds = self._clock() - self._began
        return found

    def _name_what_was_left(self) -> None:
        """Say of every factor that waits for its first race that an interrupt came before it."""
        factors, reasons = self._space.factors(self.found.chosen)
        hopeless = {each.name: why for each in factors if (why := self._hopeless(each))}
        waiting = {each.name: _INTERRUPTED for each in factors}
        known = {**waiting, **reasons, **hopeless}
        self.found.not_raced = {name: why for name, why in known.items() if name not in self._num_heats}

    def _enough_seconds(self) -> int | None:
        """How many seconds should do to race every factor and to measure the gain; None where those given did."""
        found = self.found
        was_short = any(each.result == _NOT_MEASURED for each in found.raced) or (
            found.gain is None and bool(found.chosen) and not found.broken
        )
        if not was_short and _NO_TIME not in found.not_raced.values():
            return None
        factors, _ = self._space.factors(found.chosen)
        sizes = [len(each.alternatives) + 1 for each in factors if not self._hopeless(each)]
        # A heat gets a part of the time for its contenders, and the last one a share of all (`_slice`).
        slowest = max((self._track.needed(size) / size for size in sizes), default=0.0)
        heats = (self._before_heats + slowest * sum(sizes)) / (1 - _LAST_SHARE)
        seconds = _MARGIN * max(heats, self._track.needed(2) / _LAST_SHARE, self._seconds)
        if was_short:  # with what was known before a heat it should have done
            seconds = max(seconds, 2 * self._seconds)
        return math.ceil(seconds / _ROUNDED_TO) * _ROUNDED_TO

    def _left(self, share: float = 0.0) -> float:
        """The seconds that are left, without a share of all that is kept."""
        return self._began + self._seconds * (1 - share) - self._clock()

    def _next_factor(self) -> Factor | None:
        """The next factor to race: those that no heat has had first, in order of what they can gain."""
        factors, not_raced = self._space.factors(self.found.chosen)
        reasons = dict(not_raced)
        waiting = []
        for factor in factors:
            if reason := self._hopeless(factor):
                reasons[factor.name] = reason
            elif self._is_due(factor):
                waiting.append(factor)
        self.found.not_raced = {name: why for name, why in reasons.items() if name not in self._num_heats}
        waiting.sort(key=lambda each: (self._num_heats.get(each.name, 0), -self._share(each)))
        for factor in waiting:
            # Without time for any heat and the last one, one heat is worth more.
            kept = _LAST_SHARE if self._num_heats else 0.0
            if self._track.needed(len(factor.alternatives) + 1) <= self._left(kept):
                return factor
            if factor.name not in self._num_heats:
                self.found.not_raced[factor.name] = _NO_TIME
        return None

    def _next_in_spare_time(self) -> tuple[Factor, float] | None:
        """While nothing is chosen, a factor without a race or a result, and the seconds that the gain leaves for it."""
        factors, _ = self._space.factors(self.found.chosen)
        unknown = {each.factor for each in self.found.raced if each.result == NOT_KNOWN}
        seconds = self._left() - self._track.needed(2)
        waiting = [
            each
            for each in factors
            if (each.name in unknown or each.name not in self._num_heats)
            and self._num_heats.get(each.name, 0) < _MAX_PASSES
            and not self._hopeless(each)
            and self._track.needed(len(each.alternatives) + 1) <= seconds
        ]
        if not waiting:
            return None
        factor = min(waiting, key=lambda each: (self._num_heats.get(each.name, 0), -self._share(each)))
        self.found.not_raced.pop(factor.name, None)
        self.found.raced = [each for each in self.found.raced if each.factor != factor.name]
        return factor, seconds / len(waiting)

    def _is_due(self, factor: Factor) -> bool:
        """Whether a factor was not raced with what is chosen now, but for what it has chosen itself."""
        if self._num_heats.get(factor.name, 0) >= _MAX_PASSES:
            return False
        return self._raced_with.get(factor.name) != self._others(factor)

    def _others(self, factor: Factor) -> dict[str, str]:
        own = {name for each in factor.alternatives for name in each}
        return {name: value for name, value in self.found.chosen.items() if name not in own}

    def _share(self, factor: Factor) -> float:
        return sum(self._shares.get(phase, 0.0) for phase in factor.phases) if factor.phases else 1.0

    def _hopeless(self, factor: Factor) -> str:
        """Why a factor cannot gain anything that counts; empty if it may."""
        share = self._share(factor)
        if not self._shares or share >= _LEAST_SHARE:
            return ""
        verb = "takes" if len(factor.phases) == 1 else "take"
        return f"{' and '.join(factor.phases)} {verb} {share:.1%} of a step's time, so it cannot gain more"

    def _race(self, factor: Factor, seconds: float) -> None:
        chosen = self.found.chosen
        contenders = [chosen, *({**chosen, **each} for each in factor.alternatives)]
        heat = self._track.race(contenders, seconds=seconds)
        self._num_heats[factor.name] = self._num_heats.get(factor.name, 0) + 1
        self._raced_with[factor.name] = self._others(factor)
        self.found.is_interrupted |= heat.is_interrupted
        best = heat.estimates.get(heat.fastest)
        taken = heat.fastest if best is not None and best.value >= LEAST_GAIN else 0
        for at, settings in enumerate(factor.alternatives, start=1):
            self.found.raced.append(_raced(factor, settings, heat, at, is_taken=at == taken))
            self._say(_line(self.found.raced[-1]))
        if taken:
            self.found.chosen = {**chosen, **factor.alternatives[taken - 1]}
        if shares := heat.shares.get(taken):
            self._shares = dict(shares)

    def _slice(self, factor: Factor) -> float:
        """The seconds of a heat: an equal part of what is left for the factors that still wait."""
        factors, _ = self._space.factors(self.found.chosen)
        waiting = [each for each in factors if self._is_due(each) and not self._hopeless(each)]
        size = len(factor.alternatives) + 1
        total = max(sum(len(each.alternatives) + 1 for each in waiting), size)
        return max(self._track.needed(size), self._left(_LAST_SHARE) * size / total)

    def _measure_gain(self) -> None:
        heat = self._track.race([{}, self.found.chosen], seconds=max(self._left(), 0.0), is_last=True)
        self.found.is_interrupted |= heat.is_interrupted
        self.found.gain = heat.estimates.get(1)
        self.found.broken = heat.failures.get(0, "")


def label_of(settings: Settings) -> str:
    """Return settings as they are typed."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _raced(factor: Factor, settings: Settings, heat: Heat, at: int, *, is_taken: bool) -> Raced:
    estimate = heat.estimates.get(at)
    if at in heat.failures:
        return Raced(factor.name, settings, None, "failed", heat.failures[at])
    if estimate is None:
        return Raced(
            factor.name, settings, None, _NOT_MEASURED, _INTERRUPTED if heat.is_interrupted else "too little time"
        )
    if is_taken:
        return Raced(factor.name, settings, estimate, "taken" if estimate.low > 1 else ON_TRIAL)
    return Raced(factor.name, settings, estimate, _result(estimate, at in heat.dropped))


def _result(estimate: Estimate, is_dropped: bool) -> str:
    if estimate.high < 1:
        return "slower"
    if is_dropped:
        return "dropped"
    if estimate.value >= LEAST_GAIN:
        return "not the fastest"
    return "no gain" if estimate.high <= LEAST_GAIN else NOT_KNOWN


def _line(raced: Raced) -> str:
    if raced.estimate is None:
        return f"{raced.factor}: {label_of(raced.settings)} {raced.result}" + (
            f": {raced.failure}" if raced.failure else ""
        )
    each = raced.estimate
    return (
        f"{raced.factor}: {label_of(raced.settings)} is {each.value:.2f} times as fast "
        f"[{each.low:.2f}, {each.high:.2f}], {raced.result}"
    )
