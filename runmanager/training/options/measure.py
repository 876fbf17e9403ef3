"""The settings of the group `measure`: each run by itself, or side by side in turns. Loads no torch."""

import math
from dataclasses import dataclass
from typing import ClassVar

from runmanager.validation import at_least_faults, fault

__all__ = ["MEASURE_TYPES", "MeasureOptions", "PairedOptions"]


@dataclass(frozen=True)
class MeasureOptions:
    """One run at a time, each measured by itself; the first `warmup_epochs` never count."""

    choice: ClassVar[str] = "single"

    name: str = "single"
    warmup_epochs: int = 1

    def faults(self) -> list[str]:
        """Every fault of these values, as readable lines."""
        renamed = [] if self.name == self.choice else [_renamed(self.choice, self.name)]
        return renamed + at_least_faults("measure.warmup_epochs", self.warmup_epochs, 1)


@dataclass(frozen=True)
class PairedOptions(MeasureOptions):
    """Runs that differ in `axis` and in the seed alone live side by side and take turns, one at a time at work.

    After their epochs they take further steps in rounds, one turn each in an order drawn anew. After `min_rounds` and
    more their processes are restarted, until the speedups' intervals reach no more than `half_width` to either side, or
    `max_seconds` are spent on it. A turn has `block_steps` steps; null: as many as take a tenth of a second, at most an
    epoch. `axis` null is the one setting that varies, `device` where several do.
    """

    choice: ClassVar[str] = "paired"

    name: str = "paired"
    axis: str | None = None
    half_width: float = 0.01
    max_seconds: float = 60.0
    min_rounds: int = 10
    block_steps: int | None = None

    def faults(self) -> list[str]:
        """Every fault of these values, as readable lines."""
        faults = super().faults()
        if not 0 < self.half_width < 1:
            faults.append(fault("measure.half_width", "be above 0 and below 1", self.half_width, "0.01 means 1%"))
        if not 0 < self.max_seconds < math.inf:
            faults.append(fault("measure.max_seconds", "be a number of seconds above 0", self.max_seconds))
        faults += at_least_faults("measure.min_rounds", self.min_rounds, 1)
        return faults + at_least_faults("measure.block_steps", self.block_steps, 1)


MEASURE_TYPES: dict[str, type[MeasureOptions]] = {"single": MeasureOptions, "paired": PairedOptions}


def _renamed(choice: str, name: str) -> str:
    return fault("measure.name", f"stay '{choice}'", repr(name), "choose another one with `measure=paired`")
