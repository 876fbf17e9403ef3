"""The overall effect of all pairs of two sides: their mean where they agree, else the setting it depends on. Pure."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from runmanager.records.settings.values import hashable
from runmanager.results.compare.comparison_table import ComparisonRow, MeasuredEffect
from runmanager.results.compare.verdict import verdict_on
from runmanager.results.stats.descriptive import Estimate, mean
from runmanager.results.stats.effects import drift_variance
from runmanager.results.stats.noise_model import critical_value, error_of_sum
from runmanager.text import format_value

_SIGNIFICANCE = 0.05
_MAX_POOLED_DOF = 4.0
_MIN_ERROR = 1e-9  # keeps the weight of equal measurements finite


@dataclass(frozen=True)
class OverallEffect:
    """The combined effect of the measured rows of two sides.

    `effect` is their geometric mean (their mean for differences) with its simultaneous 95% interval, and `verdict`
    the verdict on it. `agrees` is whether the effects differ by noise only. Where they do not, `setting` is the column
    that they depend on, None where no column explains it, and `effects` has the mean effect by the value of `setting`.
    """

    effect: MeasuredEffect
    verdict: str
    agrees: bool
    setting: str | None = None
    effects: Mapping[str, float] | None = None

    @property
    def estimate(self) -> Estimate:
        return self.effect.estimate


def overall_effect(rows: Sequence[ComparisonRow], settings: Sequence[str], *, sides: int = 1) -> OverallEffect:
    """Combine at least one measured row; `settings` are the columns of the matched settings that vary.

    `sides` is the number of such effects in the comparison: their intervals hold simultaneously.

    Whether the pairs agree is tested at 5% by Cochran's Q ("The combination of estimates from different experiments",
    *Biometrics* 10, 1954), the weighted squares about the weighted mean, with Welch's correction for variances that are
    estimates themselves (*Biometrika* 38, 1951). The mean is not weighted: each pair counts equally, regardless of its
    noise. Where the pairs lie further apart than their noise predicts, though not significantly, the interval is
    widened by that ratio (Birge, *Physical Review* 40, 1932). Pairs with the same seeds may be correlated, as where a
    setting does not change what is learnt: then the mean over pairs varies between seeds by more than the noise of each
    pair predicts, and that variance is used. The setting that the effect depends on is the one that explains most of Q,
    by the adjusted R², which accounts for the number of its values.
    """
    found = [effect for row in rows if (effect := row.effect) is not None]
    assert len(found) == len(rows)  # only measured rows have an overall effect
    if len(rows) == 1:
        return OverallEffect(found[0], rows[0]["verdict"], agrees=True)
    metric = rows[0].metric
    is_ratio = metric.effect != "difference"
    values = [math.log(each.estimate.value) if is_ratio else each.estimate.value for each in found]
    errors = [max(each.estimate.error, _MIN_ERROR) for each in found]
    dofs = [each.estimate.dof for each in found]
    weights = [1 / error**2 for error in errors]
    heterogeneity, p_value = _welch(values, weights, dofs)
    # An unseen drift between the sides is the same in all rows, and is not averaged out.
    drift = drift_variance(max(each.drift for each in found))
    apart = [_without(drift, error, dof) / len(rows) for error, dof in zip(errors, dofs, strict=True)]
    error, dof = error_of_sum(list(zip(apart, dofs, strict=True)))
    error = max(error, math.hypot(*apart) * math.sqrt(max(1.0, heterogeneity)))
    error, dof = _with_seed_correlation(found, error, dof)
    error, dof = math.sqrt(error**2 + drift), dof * (1 + drift / error**2) ** 2
    middle, half_width = mean(values), critical_value(dof, sides) * error
    low, high = middle - half_width, middle + half_width
    if is_ratio:
        middle, low, high = math.exp(middle), math.exp(low), math.exp(high)
    estimate = Estimate(middle, low, high, error, dof)
    effect = MeasuredEffect(
        estimate,
        max(each.tolerance for each in found),
        found[0].margin,
        by_seed={},
        drift=max(each.drift for each in found),
        detectable=max(each.detectable for each in found),
    )
    overall_verdict = verdict_on(metric, effect)
    if p_value >= _SIGNIFICANCE:
        return OverallEffect(effect, overall_verdict, agrees=True)
    setting = _explaining_setting(rows, settings, values, weights)
    if setting is None:
        return OverallEffect(effect, overall_verdict, agrees=False)
    groups = _grouped(rows, setting)
    effects = {
        format_value(rows[indices[0]][setting]): mean([values[index] for index in indices])
        for indices in groups.values()
    }
    effects = {text: math.exp(each) if is_ratio else each for text, each in effects.items()}
    return OverallEffect(effect, overall_verdict, False, setting, effects)


def _without(drift: float, error: float, dof: float) -> float:
    """Return the error of a row whose 95% interval is without that of a drift of this variance."""
    own, of_normal = critical_value(dof, 1), critical_value(1e9, 1)
    return math.sqrt(max(error**2 - drift * (of_normal / own) ** 2, _MIN_ERROR**2))


def _with_seed_correlation(found: Sequence[MeasuredEffect], error: float, dof: float) -> tuple[float, float]:
    """Return the error of the mean and its degrees of freedom where seeds may affect all rows equally.

    `error` is that of independent rows; the result is never smaller. The variance of the mean over rows between seeds
    includes what the rows share. Few seeds estimate it badly, so the two are pooled, with a few degrees of freedom for
    the independent one, and fewer the more the seeds vary.
    """
    seeds = [seed for seed in found[0].by_seed if all(seed in each.by_seed for each in found)]
    if len(seeds) < 2:
        return error, dof
    means = [mean([each.by_seed[seed] for each in found]) for seed in seeds]
    middle = mean(means)
    independent, seen = error**2, math.fsum((each - middle) ** 2 for each in means) / (len(seeds) - 1) / len(seeds)
    if seen <= independent:
        return error, dof
    of_independent = min(dof, _MAX_POOLED_DOF) * (independent / seen) ** 2
    total = of_independent + len(seeds) - 1
    return math.sqrt((of_independent * independent + (len(seeds) - 1) * seen) / total), total


def _welch(values: Sequence[float], weights: Sequence[float], dofs: Sequence[float]) -> tuple[float, float]:
    """Return Q over its degrees of freedom, corrected for estimated variances, and its p-value."""
    from scipy.special import fdtrc

    count, total = len(values), math.fsum(weights)
    uncertainty = math.fsum((1 - weight / total) ** 2 / dof for weight, dof in zip(weights, dofs, strict=True))
    corrected = _squares(values, weights) / (count - 1) / (1 + 2 * (count - 2) / (count**2 - 1) * uncertainty)
    return corrected, float(fdtrc(count - 1, (count**2 - 1) / (3 * uncertainty), corrected))


def _squares(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return Cochran's Q: the weighted squares about the weighted mean."""
    middle = math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / math.fsum(weights)
    return math.fsum(weight * (value - middle) ** 2 for value, weight in zip(values, weights, strict=True))


def _explaining_setting(
    rows: Sequence[ComparisonRow], settings: Sequence[str], values: Sequence[float], weights: Sequence[float]
) -> str | None:
    whole, count = _squares(values, weights) / (len(rows) - 1), len(rows)
    found: list[tuple[float, str]] = []
    varying = [name for name in settings if len(_grouped(rows, name)) > 1]
    if len(varying) == 1:
        return varying[0]
    for name in varying:
        groups = _grouped(rows, name).values()
        left = math.fsum(_squares([values[at] for at in group], [weights[at] for at in group]) for group in groups)
        if len(groups) < count:
            found.append((1 - left / (count - len(groups)) / whole, name))
    explained, name = max(found, key=lambda each: each[0], default=(0.0, ""))
    return name if explained > 0 else None


def _grouped(rows: Sequence[ComparisonRow], setting: str) -> dict[Hashable, list[int]]:
    """Return the indices of the rows by their value of a setting."""
    groups: dict[Hashable, list[int]] = {}
    for at, row in enumerate(rows):
        groups.setdefault(hashable(row[setting]), []).append(at)
    return groups
