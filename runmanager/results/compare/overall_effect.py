"""All pairs of two sides as one effect: their mean where they agree, else the setting that it depends on. Pure."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from runmanager.results.compare.comparison_table import ComparisonRow, MeasuredEffect
from runmanager.results.compare.pairing import frozen
from runmanager.results.compare.verdict import verdict
from runmanager.results.stats.descriptive import Estimate, mean
from runmanager.results.stats.noise_model import MOST_LEARNED, Noise, Residuals, critical
from runmanager.text import format_value

__all__ = ["Overall", "overall"]

_UNLIKELY = 0.05
_LEAST_ERROR = 1e-9  # equal measurements have no error of their own: their weight stays finite


@dataclass(frozen=True)
class Overall:
    """What the measured rows of two sides come to.

    `estimate` is their geometric mean (their mean for differences) with its 95% interval, one of several that hold
    together, and `verdict` what that says. `agrees` is whether their effects are the same but for noise. Where they are
    not, `setting` is the column that they depend on, None where none explains it, and `effects` the mean effect at each
    of its values.
    """

    estimate: Estimate
    verdict: str
    agrees: bool
    setting: str | None = None
    effects: Mapping[str, float] | None = None


def overall(rows: Sequence[ComparisonRow], settings: Sequence[str], *, sides: int = 1) -> Overall:
    """Of at least one measured row; `settings` are the columns of matched settings that vary.

    `sides` is how many such answers the comparison gives: their intervals hold together.

    Whether the pairs agree is asked of Cochran's Q ("The combination of estimates from different experiments",
    *Biometrics* 10, 1954), the weighted squares about the weighted mean, with Welch's correction for variances that
    are estimates themselves (*Biometrika* 38, 1951): at 5%. The mean is not weighted: each pair counts alike,
    whatever its noise. Where the pairs lie further apart than their noise says, though within chance, the interval
    is wider by as much (Birge, *Physical Review* 40, 1932). Pairs with the same seeds may share their luck, as
    where a setting does not change what is learnt: then the mean over pairs differs from seed to seed by more than
    it does by the noise of each pair, and so much noise it has. What the effect depends on is the setting that
    explains most of Q, by the adjusted R², which takes the number of its values into account.
    """
    found = [effect for row in rows if (effect := row.effect) is not None]
    assert len(found) == len(rows)  # only measured rows have an overall effect
    if len(rows) == 1:
        return Overall(found[0].estimate, rows[0]["verdict"], agrees=True)
    metric = rows[0].metric
    is_ratio = metric.effect != "difference"
    values = [math.log(each.estimate.value) if is_ratio else each.estimate.value for each in found]
    errors = [max(each.estimate.error, _LEAST_ERROR) for each in found]
    freedoms = [each.estimate.freedom for each in found]
    weights = [1 / error**2 for error in errors]
    spread, chance = _welch(values, weights, freedoms)
    error = math.hypot(*errors) / len(rows) * math.sqrt(max(1.0, spread))
    unsure = sum(each**4 / of_row for each, of_row in zip(errors, freedoms, strict=True))
    freedom = sum(each**2 for each in errors) ** 2 / unsure
    error, freedom = _with_shared_luck(found, error, freedom)
    middle, reach = mean(values), critical(freedom, sides, own=freedom) * error
    low, high = middle - reach, middle + reach
    if is_ratio:
        middle, low, high = math.exp(middle), math.exp(low), math.exp(high)
    estimate = Estimate(middle, low, high, error, freedom)
    said = verdict(
        metric,
        estimate.interval,
        tolerance=max(each.tolerance for each in found),
        margin=found[0].margin,
    )
    if chance >= _UNLIKELY:
        return Overall(estimate, said, agrees=True)
    setting = _telling(rows, settings, values, weights)
    if setting is None:
        return Overall(estimate, said, agrees=False)
    groups = _grouped(rows, setting)
    effects = {
        format_value(rows[places[0]][setting]): mean([values[at] for at in places]) for places in groups.values()
    }
    return Overall(
        estimate, said, False, setting, {key: math.exp(each) if is_ratio else each for key, each in effects.items()}
    )


def _with_shared_luck(found: Sequence[MeasuredEffect], error: float, freedom: float) -> tuple[float, float]:
    """The error of the mean and its degrees of freedom, where seeds may move all rows alike: never a smaller error.

    `error` is that of rows that know nothing of each other. What the mean over rows differs by from seed to seed has in
    it what they share; of few seeds it is known badly, so the two are pooled as in `noise.py`.
    """
    seeds = [seed for seed in found[0].by_seed if all(seed in each.by_seed for each in found)]
    if len(seeds) < 2:
        return error, freedom
    means = [mean([each.by_seed[seed] for each in found]) for seed in seeds]
    middle = mean(means)
    apart = Noise(error**2 * len(seeds), min(freedom, MOST_LEARNED))
    shared = apart.updated(Residuals(math.fsum((each - middle) ** 2 for each in means), len(seeds) - 1.0))
    if shared.variance <= apart.variance:
        return error, freedom
    return shared.deviation_of_mean(len(seeds)), shared.freedom


def _welch(values: Sequence[float], weights: Sequence[float], freedoms: Sequence[float]) -> tuple[float, float]:
    """Q over its degrees of freedom, corrected for estimated variances, and how likely so much is by chance."""
    from scipy.special import fdtrc

    count, whole = len(values), sum(weights)
    unsure = sum((1 - weight / whole) ** 2 / freedom for weight, freedom in zip(weights, freedoms, strict=True))
    corrected = _squares(values, weights) / (count - 1) / (1 + 2 * (count - 2) / (count**2 - 1) * unsure)
    return corrected, float(fdtrc(count - 1, (count**2 - 1) / (3 * unsure), corrected))


def _squares(values: Sequence[float], weights: Sequence[float]) -> float:
    """Cochran's Q: the weighted squares about the weighted mean."""
    middle = math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / math.fsum(weights)
    return math.fsum(weight * (value - middle) ** 2 for value, weight in zip(values, weights, strict=True))


def _telling(
    rows: Sequence[ComparisonRow], settings: Sequence[str], values: Sequence[float], weights: Sequence[float]
) -> str | None:
    whole, count = _squares(values, weights) / (len(rows) - 1), len(rows)
    found: list[tuple[float, str]] = []
    varying = [name for name in settings if len(_grouped(rows, name)) > 1]
    if len(varying) == 1:
        return varying[0]
    for name in varying:
        groups = _grouped(rows, name).values()
        left = sum(_squares([values[at] for at in group], [weights[at] for at in group]) for group in groups)
        if len(groups) < count:
            found.append((1 - left / (count - len(groups)) / whole, name))
    explained, name = max(found, key=lambda each: each[0], default=(0.0, ""))
    return name if explained > 0 else None


def _grouped(rows: Sequence[ComparisonRow], setting: str) -> dict[Hashable, list[int]]:
    """The places of the rows by their value of a setting."""
    groups: dict[Hashable, list[int]] = {}
    for at, row in enumerate(rows):
        groups.setdefault(frozen(row[setting]), []).append(at)
    return groups
