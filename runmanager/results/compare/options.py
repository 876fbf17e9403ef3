"""How runs are compared: the options of a comparison, and what is wrong with them."""

from dataclasses import dataclass, field
from typing import Any

from runmanager.validation import field_faults, limits

__all__ = ["ANY_AXIS", "CompareOptions"]

ANY_AXIS = "any"

_MARGIN = 0.03  # of a ratio: smaller effects are rarely worth a decision


@dataclass(frozen=True)
class CompareOptions:
    """How runs are compared.

    `axis` is the compared setting or group, several joined by `+`, or `any` for each one that varies (None: what paired
    runs took turns for, else `device`, for which another one stands in where no two devices can be compared);
    `baseline` its value to compare against (None: `cpu` for `device`, else the first given). `metric` is what they are
    compared by, a name of `METRIC_NAMES`. `drift` is the share by which a machine drifts while one side runs after the
    other: a ratio must then exceed it; `paired_drift` is the same where both sides were measured interleaved. `margin`
    is the largest effect that is as good as none: a share for ratios (None: 3%), for differences in the metric's own
    unit (None: there is none, and nothing is `no difference`). Below `min_epochs` measured epochs a side nothing is
    said, nor below `min_seeds` runs where a run has but one value.
    """

    axis: str | None = None
    baseline: Any = None
    metric: str = "samples_per_second"
    drift: float = field(default=0.10, metadata=limits(ge=0, lt=1, key="--drift", way_out="0.1 means 10%"))
    paired_drift: float = field(default=0.01, metadata=limits(ge=0, lt=1, way_out="0.1 means 10%"))
    margin: float | None = field(
        default=None, metadata=limits(gt=0, key="--margin", way_out="0.03 means 3% of a ratio")
    )
    min_epochs: int = field(default=5, metadata=limits(ge=1))
    min_seeds: int = field(default=3, metadata=limits(ge=2))

    def margin_of(self, effect: str) -> float | None:
        """The margin for this kind of effect; None where there is none."""
        return self.margin if self.margin is not None or effect == "difference" else _MARGIN

    def faults(self) -> list[str]:
        """What is wrong with these options, one readable line each."""
        faults = field_faults(self)
        if self.axis == ANY_AXIS and self.baseline is not None:
            faults.append(
                f"`--baseline` must belong to one axis, got {self.baseline!r} with `--axis any`; name the axis."
            )
        return faults
