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

from runmanager.race.heat import (
    INTERRUPTED,
    LEAST_GAIN,
    NOT_KNOWN,
    TOO_LITTLE_TIME,
    Factor,
    Heat,
    Raced,
    Settings,
    is_guess,
    label_of,
    line_of,
    results_of,
)
from runmanager.results.stats.descriptive import Estimate

_LAST_SHARE = 0.3  # of the time is kept for the last heat
_LEAST_SHARE = 0.03  # of a step's time: what takes less cannot gain more
_MAX_PASSES = 2
_MARGIN = 1.25  # of the seconds that should do: processes do not start equally fast each time
_ROUNDED_TO = 10  # seconds
_NO_TIME = "no time was left"
_GIVEN_FAILED = "the settings given failed"


class Track(Protocol):
    """Where settings race."""

    def race(self, contenders: Sequence[Settings], *, seconds: float, is_last: bool = False) -> Heat:
        """Race the contenders, given by what they change, for about as many seconds; `is_last` is the gain's heat."""
        ...

    def needed(self, contenders: Sequence[Settings]) -> float:
        """Return the seconds that a heat of these contenders needs at least."""
        ...


class Space(Protocol):
    """The factors of a program."""

    def factors(self, chosen: Settings) -> tuple[Sequence[Factor], Mapping[str, str]]:
        """Return what can be raced where `chosen` is set, and why other factors are not raced, by their names."""
        ...

    def changes(self, chosen: Settings) -> dict[str, str]:
        """Return those of the settings that differ from the given ones."""
        ...


@dataclass
class Tuning:
    """What a search has found: the settings `chosen`, their `gain` over the given ones, and the values of every heat.

    `gain` is None where nothing was found, or was not measured. `not_raced` says why factors were not. `broken` says
    how the given settings failed, where they did, and `failed` which settings found failed while their gain was
    measured, and how: none are chosen then. `enough_seconds` should do to race all settings; None where the seconds
    given did.
    """

    chosen: dict[str, str] = field(default_factory=dict)
    gain: Estimate | None = None
    raced: list[Raced] = field(default_factory=list)
    not_raced: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    is_interrupted: bool = False
    broken: str = ""
    failed: str = ""
    enough_seconds: int | None = None

    def latest(self) -> list[Raced]:
        """Each raced value once: by the last heat that measured it, or by its last one where none did."""
        found: dict[tuple[str, str], Raced] = {}
        for each in self.raced:
            key = (each.factor, label_of(each.settings))
            if key not in found or each.estimate is not None or found[key].estimate is None:
                found[key] = each
        return list(found.values())


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
        self._unfit: dict[str, str] = {}  # why factors are not raced, but for a lack of time
        self.found = Tuning()

    def run(self) -> Tuning:
        """Search until nothing is left to race or the time is up. After an interrupt, return what is known."""
        found = self.found
        try:
            while not self._is_over() and (factor := self._next_factor()) is not None:
                self._race(factor, self._slice(factor))
            while not (self._is_over() or found.chosen) and (spare := self._next_in_spare_time()) is not None:
                self._race(*spare)
            if found.chosen and not found.is_interrupted and self._needed_for_gain() <= self._left():
                self._measure_gain()
        except KeyboardInterrupt:
            found.is_interrupted = True
        if found.is_interrupted:
            self._name_what_was_left(INTERRUPTED)
        elif self._is_over():
            self._name_what_was_left(_GIVEN_FAILED)
        else:
            found.enough_seconds = self._enough_seconds()
        found.seconds = self._clock() - self._began
        return found

    def _is_over(self) -> bool:
        """Whether there is nothing to race against: after an interrupt, and where the given settings fail."""
        found = self.found
        return found.is_interrupted or bool(found.broken and not found.chosen)

    def _factors(self) -> list[Factor]:
        """What can be raced and may gain something: that of which no heat was first, in order of what it can gain."""
        factors, reasons = self._space.factors(self.found.chosen)
        hopeless = {each.name: why for each in factors if (why := self._hopeless(each))}
        self._unfit = {name: why for name, why in {**reasons, **hopeless}.items() if name not in self._num_heats}
        open_ones = (each for each in factors if each.name not in hopeless)
        return sorted(open_ones, key=lambda each: (self._num_heats.get(each.name, 0), -self._share(each)))

    def _name_what_was_left(self, reason: str) -> None:
        """Say of every factor that waits for its first race what came before it."""
        waiting = {each.name: reason for each in self._factors() if each.name not in self._num_heats}
        self.found.not_raced = waiting | self._unfit

    def _enough_seconds(self) -> int | None:
        """How many seconds should do to race every factor and to measure the gain; None where those given did."""
        found = self.found
        was_short = any(each.failure == TOO_LITTLE_TIME for each in found.latest()) or (
            found.gain is None and bool(found.chosen) and not found.broken
        )
        if not was_short and _NO_TIME not in found.not_raced.values():
            return None
        heats = [self._contenders(each) for each in self._factors()]
        # A heat gets a part of the time for its contenders, and the last one a share of all (`_slice`).
        slowest = max((self._track.needed(each) / len(each) for each in heats), default=0.0)
        needed = (self._before_heats + slowest * sum(map(len, heats))) / (1 - _LAST_SHARE)
        seconds = _MARGIN * max(needed, self._needed_for_gain() / _LAST_SHARE, self._seconds)
        if was_short:  # with what was known before a heat it should have done
            seconds = max(seconds, 2 * self._seconds)
        return math.ceil(seconds / _ROUNDED_TO) * _ROUNDED_TO

    def _left(self, share: float = 0.0) -> float:
        """The seconds that are left, without a share of all that is kept."""
        return self._began + self._seconds * (1 - share) - self._clock()

    def _next_factor(self) -> Factor | None:
        """The next factor to race."""
        waiting = [each for each in self._factors() if self._is_due(each)]
        self.found.not_raced = self._unfit
        for factor in waiting:
            # Without time for any heat and the last one, one heat is worth more.
            kept = _LAST_SHARE if self._num_heats else 0.0
            if self._track.needed(self._contenders(factor)) <= self._left(kept):
                return factor
            if factor.name not in self._num_heats:
                self.found.not_raced[factor.name] = _NO_TIME
        return None

    def _next_in_spare_time(self) -> tuple[Factor, float] | None:
        """While nothing is chosen, a factor without a race or a result, and the seconds that the gain leaves for it."""
        unknown = {each.factor for each in self.found.raced if each.result == NOT_KNOWN}
        seconds = self._left() - self._needed_for_gain()
        waiting = [
            each
            for each in self._factors()
            if (each.name in unknown or each.name not in self._num_heats)
            and self._num_heats.get(each.name, 0) < _MAX_PASSES
            and self._track.needed(self._contenders(each)) <= seconds
        ]
        if not waiting:
            return None
        self.found.not_raced.pop(waiting[0].name, None)
        return waiting[0], seconds / len(waiting)

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

    def _contenders(self, factor: Factor) -> list[Settings]:
        chosen = self.found.chosen
        return [chosen, *({**chosen, **each} for each in factor.alternatives)]

    def _needed_for_gain(self) -> float:
        return self._track.needed([{}, self.found.chosen])

    def _race(self, factor: Factor, seconds: float) -> None:
        chosen = self.found.chosen
        heat = self._track.race(self._contenders(factor), seconds=seconds)
        self._num_heats[factor.name] = self._num_heats.get(factor.name, 0) + 1
        self._raced_with[factor.name] = self._others(factor)
        self.found.is_interrupted |= heat.is_interrupted
        best = heat.estimates.get(heat.fastest)
        taken = heat.fastest if best is not None and best.value >= LEAST_GAIN and not is_guess(best) else 0
        results = results_of(factor, heat, taken)
        self.found.raced += results
        for each in results:
            self._say(line_of(each))
        if taken:
            self.found.chosen = self._space.changes({**chosen, **factor.alternatives[taken - 1]})
        elif not (chosen or heat.estimates):
            self.found.broken = heat.failures.get(0, "")
        if shares := heat.shares.get(taken):
            self._shares = dict(shares)

    def _slice(self, factor: Factor) -> float:
        """The seconds of a heat: an equal part of what is left for the factors that still wait."""
        waiting = [each for each in self._factors() if self._is_due(each)]
        contenders = self._contenders(factor)
        total = max(sum(len(each.alternatives) + 1 for each in waiting), len(contenders))
        return max(self._track.needed(contenders), self._left(_LAST_SHARE) * len(contenders) / total)

    def _measure_gain(self) -> None:
        found = self.found
        heat = self._track.race([{}, found.chosen], seconds=self._left(), is_last=True)
        found.is_interrupted |= heat.is_interrupted
        found.gain = heat.estimates.get(1)
        found.broken = heat.failures.get(0, "")
        if reason := heat.failures.get(1):
            found.failed, found.chosen = f"{label_of(found.chosen)}: {reason}", {}
