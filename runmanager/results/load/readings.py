"""What the meters of a run's device say of its measured epochs: columns, and what a reader must know of its clock."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from runmanager.records.run.run_record import DeviceReadings, EpochRecord
from runmanager.records.storage.reader import StoredRun

READING_COLUMNS = ("energy_joules", "samples_per_joule", "average_power_watts", "gpu_utilization", "throttled_share")

_LEAST_STEPS = 10.0  # of the counter, of which a sum misses or has one too many at either end
_STEADY = 1.1  # clocks of a settled GPU differ by less, and times follow the clock at most in proportion


class ClockChanges(NamedTuple):
    """The share of readings in which a run's device was throttled, and the lowest and the highest clock in hertz."""

    throttled_share: float = 0.0
    lowest: float = 0.0
    highest: float = 0.0

    @property
    def is_unsteady(self) -> bool:
        """Whether the clock at the ends of epochs, or turns, differed by more than a tenth."""
        return self.highest > _STEADY * self.lowest

    def lines(self) -> list[str]:
        """Return what a reader of the run's times must know; empty for a steady clock."""
        share = f"{self.throttled_share:.0%} of the readings" if self.throttled_share >= 0.005 else "a few readings"
        clocks = f"{self.lowest / 1e6:,.0f} to {self.highest / 1e6:,.0f} MHz"
        return [
            *([f"its device was throttled in {share}"] if self.throttled_share else []),
            *([f"its device's clock changed from {clocks}"] if self.is_unsteady else []),
        ]


def clock_changes(run: StoredRun, measured: Sequence[EpochRecord]) -> ClockChanges:
    """Return what happened to the clock in the run's turns, or in these epochs of one that took none."""
    found = _readings(measured)
    in_turns = [turn.clock_hertz or None for turn in run.turns if not turn.warmup]
    clocks = [hertz for hertz in in_turns or [each.clock_hertz for each in found] if hertz]
    return ClockChanges(_mean(found, "throttled_share") or 0.0, min(clocks, default=0.0), max(clocks, default=0.0))


def readings_of(run: StoredRun, measured: Sequence[EpochRecord]) -> dict[str, float | None]:
    """Return `READING_COLUMNS` of a run with these measured epochs.

    The energy is known where that of all these epochs is, and their counter took at least ten steps in them. Of several
    ranks each has a device, of which one was read.
    """
    found = _readings(measured)
    others = any(each.others_share for each in found)
    joules, watts = _energy(found) if len(found) == len(measured) and run.world_size == 1 else (None, None)
    samples = [epoch.known_samples for epoch in measured]
    known = [count for count in samples if count is not None]
    per_joule = sum(known) / joules if joules and sum(known) and len(known) == len(samples) else None
    utilization, throttled = (None if others else _mean(found, name) for name in ("utilization", "throttled_share"))
    return dict(zip(READING_COLUMNS, (joules, per_joule, watts, utilization, throttled), strict=True))


def _energy(found: Sequence[DeviceReadings]) -> tuple[float | None, float | None]:
    """Return the joules and the mean power, each None if unknown."""
    if any(each.joules is None or each.seconds is None or each.counter_steps is None for each in found):
        return None, None
    joules, seconds, steps = (math.fsum(getattr(each, name) for each in found) for name in _OF_COUNTER)
    return (joules, joules / seconds) if steps >= _LEAST_STEPS and joules > 0 and seconds > 0 else (None, None)


_OF_COUNTER = ("joules", "seconds", "counter_steps")


def _readings(measured: Sequence[EpochRecord]) -> list[DeviceReadings]:
    return [epoch.readings for epoch in measured if epoch.readings]


def _mean(found: Sequence[DeviceReadings], name: str) -> float | None:
    values = [value for each in found if (value := getattr(each, name)) is not None]
    return math.fsum(values) / len(values) if values else None
