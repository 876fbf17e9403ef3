"""The options of a comparison, and their validation."""

import math
from dataclasses import dataclass
from typing import Any

__all__ = ["ANY_AXIS", "CompareOptions"]

ANY_AXIS = "any"

_DEFAULT_MARGIN = 0.03  # of a ratio: smaller effects are rarely worth a decision


@dataclass(frozen=True)
class CompareOptions:
    """The options of a comparison.

    `axis` is the compared setting or group, several joined by `+`, or `any` for each one that varies (None: the axis
    along which paired runs took turns, else `device`, which another axis stands in for where no two devices can be
    compared); `baseline` is its value to compare against (None: `cpu` for `device`, else the first given). `metric` is
    one of `METRIC_NAMES`. `drift` is the share by which a machine may drift while one side runs after the other: a
    ratio must exceed it; `paired_drift` is the same for interleaved measurements. `margin` is the largest negligible
    effect: a share for ratios (None: 3%), for differences in the metric's own unit (None: no effect is negligible, and
    no verdict is `no difference`). Pairs below `min_epochs` measured epochs a side are not measured, nor those below
    `min_seeds` runs a side for metrics with one value a run.
    """

    axis: str | None = None
    baseline: Any = None
    metric: str = "samples_per_second"
    drift: float = 0.10
    paired_drift: float = 0.01
    margin: float | None = None
    min_epochs: int = 5
    min_seeds: int = 3

    def margin_of(self, effect: str) -> float | None:
        """Return the margin for this kind of effect; None for no margin."""
        return self.margin if self.margin is not None or effect == "difference" else _DEFAULT_MARGIN

    def faults(self) -> list[str]:
        """Return the errors in these options, one line each."""
        faults = [
            f"`{name}` must be at least 0 and below 1, got {value}; 0.1 means 10%."
            for name, value in (("--drift", self.drift), ("paired_drift", self.paired_drift))
            if not 0 <= value < 1
        ]
        if self.margin is not None and not 0 < self.margin < math.inf:
            faults.append(f"`--margin` must be above 0 and finite, got {self.margin}; 0.03 means 3% of a ratio.")
        least = (("min_epochs", 1), ("min_seeds", 2))
        faults += [
            f"`{name}` must be at least {low}, got {value}."
            for name, low in least
            if (value := getattr(self, name)) < low
        ]
        if self.axis == ANY_AXIS and self.baseline is not None:
            faults.append(
                f"`--baseline` must belong to one axis, got {self.baseline!r} with `--axis any`; name the axis."
            )
        return faults
