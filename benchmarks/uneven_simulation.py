"""Simulated comparisons of equal sides whose noise is far above the method's prior or differs between sides."""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.noise_models import Floats
from runmanager.results.compare.comparison_table import ComparisonRow, MeasuredEffect
from runmanager.results.compare.overall_effect import overall_effect
from runmanager.results.metrics.metric_lookup import find_metric
from runmanager.results.stats.descriptive import Estimate
from runmanager.results.stats.effects import make_contrast, run_values, simultaneous_estimates

__all__ = ["uneven_lines"]

Line = tuple[str, int, str, str]

_LOUD = 0.2
_CELLS = {
    "half of 20 candidates 30 times as noisy, 3 seeds": ([0.001] * 11 + [0.03] * 10, 3),
    "half of 20 candidates 30 times as noisy, 5 seeds": ([0.001] * 11 + [0.03] * 10, 5),
    "one of 4 candidates 15 times as noisy, 3 seeds": ([0.002] * 4 + [0.03], 3),
}


def uneven_lines(trials: int) -> Iterator[Line]:
    """Yield results for noisy runs, unequal sides, cells of unequal noise, and pairs with noise shared by seed."""
    generator = np.random.default_rng(0)
    for runs in (2, 3, 5):
        held = [_holds(_rows(generator.normal(0, _LOUD, (2, runs)), is_ratio=True)) for _ in range(trials)]
        yield f"runs that differ by 20%, {runs} a side: coverage", trials, _share(held), "as near 95% as possible"
    few = max(1, trials // 10)
    held = [_holds(_rows(generator.normal(0, _LOUD, (21, 3)), is_ratio=True)) for _ in range(few)]
    yield "20 equal candidates, runs that differ by 20%, 3 a side: a false interval", few, _lost(held), "at most 6%"
    held = [_holds(_two_samples(generator.normal(0, 0.01, 20), generator.normal(0, 0.1, 3))) for _ in range(trials)]
    yield "20 runs that differ by 1% against 3 that differ by 10%: coverage", trials, _share(held), "at least 93%"
    for what, (deviations, seeds) in _CELLS.items():
        scale = np.array(deviations)[:, None]
        held = [_holds(_rows(generator.normal(0, 1, (len(scale), seeds)) * scale), no_effect=0.0) for _ in range(few)]
        yield f"accuracies, {what}: a false interval", few, _lost(held), "at most 6%"
    for shared in (0.01, 0.02):
        held = [_mean_holds(generator, shared) for _ in range(few)]
        what = f"8 pairs, noise of 1% per run and {shared:.0%} per seed, 5 seeds: the interval of their mean covers"
        yield what, few, _share(held), "at least 93%"


def _rows(cells: Floats, *, is_ratio: bool = False) -> list[Estimate]:
    """Compare each cell with the first one, seed by seed."""
    values = [run_values(_as_runs(cell, is_ratio), is_ratio=is_ratio) for cell in cells]
    return simultaneous_estimates(
        [make_contrast(values[0], each, is_ratio=is_ratio, are_paired=True) for each in values[1:]]
    )


def _two_samples(baseline: Floats, candidate: Floats) -> list[Estimate]:
    sides = [run_values(_as_runs(side, True), is_ratio=True) for side in (baseline, candidate)]
    return simultaneous_estimates([make_contrast(sides[0], sides[1], is_ratio=True)])


def _as_runs(cell: Floats, is_ratio: bool) -> list[list[float]]:
    values = np.exp(cell) if is_ratio else cell
    return [[float(value)] for value in values]


def _holds(rows: Sequence[Estimate], *, no_effect: float = 1.0) -> bool:
    """Return whether every interval covers `no_effect`, the effect of equal sides."""
    return all(row.low <= no_effect <= row.high for row in rows)


def _mean_holds(generator: np.random.Generator, shared: float) -> bool:
    effects = generator.normal(0, 0.01, (8, 5)) + generator.normal(0, shared, 5)
    baseline = run_values([[0.0]] * 5, is_ratio=False)
    pairs = [
        make_contrast(baseline, run_values(_as_runs(each, False), is_ratio=False), is_ratio=False, are_paired=True)
        for each in effects
    ]
    rows = [
        ComparisonRow(
            {"verdict": ""},
            metric=find_metric("val_accuracy"),
            effect=MeasuredEffect(each, 0.0, None, {str(at): value for at, value in enumerate(pair.differences)}),
            is_stand_in=False,
        )
        for pair, each in zip(pairs, simultaneous_estimates(pairs), strict=True)
    ]
    found = overall_effect(rows, ()).estimate
    return found.low <= 0 <= found.high


def _share(held: Sequence[bool]) -> str:
    return f"{np.mean(held):.1%}"


def _lost(held: Sequence[bool]) -> str:
    return f"{1 - np.mean(held):.1%}"
