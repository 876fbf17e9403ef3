"""Settings of the group `measure`: independent runs, or interleaved runs in turns. Loads no torch."""

from dataclasses import dataclass, field
from typing import ClassVar

from runmanager.validation import GroupOptions, limits

__all__ = ["MEASURE_TYPES", "MeasureOptions", "PairedOptions"]


@dataclass(frozen=True)
class MeasureOptions(GroupOptions):
    """One run at a time, each measured on its own; the first `warmup_epochs` never count."""

    group: ClassVar[str] = "measure"

    name: str = "single"
    warmup_epochs: int = field(default=1, metadata=limits(ge=1))


@dataclass(frozen=True)
class PairedOptions(MeasureOptions):
    """Interleaved runs that differ only in `axis` and the seed: they take turns, and one works at a time.

    After their epochs they take further steps in rounds: one turn each, in an order drawn for every round. After
    `min_rounds` rounds or more their processes are restarted, until the speedups' intervals reach no more than
    `half_width` to either side or `max_seconds` are spent on it. A turn has `block_steps` steps; null chooses the steps
    that take a tenth of a second, at most an epoch. `axis` null means the only setting that varies, or `device` if
    several vary.
    """

    name: str = "paired"
    axis: str | None = None
    half_width: float = field(default=0.01, metadata=limits(gt=0, lt=1, way_out="0.01 means 1%"))
    max_seconds: float = field(default=60.0, metadata=limits(gt=0))
    min_rounds: int = field(default=10, metadata=limits(ge=1))
    block_steps: int | None = field(default=None, metadata=limits(ge=1))


MEASURE_TYPES: dict[str, type[MeasureOptions]] = {"single": MeasureOptions, "paired": PairedOptions}
