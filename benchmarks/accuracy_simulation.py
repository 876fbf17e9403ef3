"""Simulated accuracies over seeds, and the best of several cells."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.noise_models import Floats
from benchmarks.simulated_runs import Line, accurate_run, share, simulated_sweep, timed_run
from runmanager.records.storage.reader import SweepContents
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions, ComparisonRow, MeasuredEffect
from runmanager.results.compare.overall_effect import overall_effect
from runmanager.results.compare.verdict import DIFFERENT
from runmanager.results.findings.best import BestCell, find_best
from runmanager.results.metrics.metric_lookup import find_metric
from runmanager.results.stats.effects import make_contrast, simultaneous_estimates

__all__ = ["ACCURACIES", "BESTS", "OTHERS", "SEEDS", "accuracy_line"]

Generator = np.random.Generator
Tables = tuple[Floats, Floats]
"""Accuracies by table, side and seed, and the true difference of the two sides of each table."""

SEEDS = (3, 5, 8)
_DEVIATION = 0.01
_SAMPLES = 500
_ORACLE_TABLES = 20_000


def independent(generator: Generator, tables: int, seeds: int) -> Tables:
    return generator.normal(0.9, _DEVIATION, (tables, 2, seeds)), np.zeros(tables)


def correlated(generator: Generator, tables: int, seeds: int) -> Tables:
    """Draw accuracies of which a seed moves both sides, by twice the rest."""
    values, truths = independent(generator, tables, seeds)
    return values + generator.normal(0, 2 * _DEVIATION, (tables, 1, seeds)), truths


def near_one(generator: Generator, tables: int, seeds: int) -> Tables:
    return _rounded(np.minimum(generator.normal(0.997, 0.003, (tables, 2, seeds)), 1.0)), np.zeros(tables)


def tied(generator: Generator, tables: int, seeds: int) -> Tables:
    """Draw accuracies that differ by a tenth of what the validation set resolves, so that most are equal."""
    levels = 0.9 + generator.uniform(0, 1 / _SAMPLES, (tables, 2, 1))
    values = levels + generator.normal(0, 0.1 / _SAMPLES, (tables, 2, seeds))
    return _rounded(values), (levels[:, 1] - levels[:, 0])[:, 0]


def collapsed(generator: Generator, tables: int, seeds: int) -> Tables:
    """Draw accuracies of which a tenth stays at 0.1."""
    values, truths = independent(generator, tables, seeds)
    return np.where(generator.random(values.shape) < 0.1, 0.1, values), truths


def _rounded(values: Floats) -> Floats:
    return np.asarray(np.round(values * _SAMPLES) / _SAMPLES)


ACCURACIES: dict[str, tuple[Callable[[Generator, int, int], Tables], bool]] = {
    "paired": (independent, True),
    "unpaired": (independent, False),
    "paired, seeds move both sides by 2%": (correlated, True),
    "paired, near 1, 500 samples": (near_one, True),
    "unpaired, near 1, 500 samples": (near_one, False),
    "paired, most are ties": (tied, True),
    "paired, a tenth of the seeds collapsed": (collapsed, True),
    "unpaired, a tenth of the seeds collapsed": (collapsed, False),
}


def accuracy_line(name: str, trials: int) -> Line:
    """Compare two sides by the accuracies of some seeds, from stored runs."""
    draw, are_paired = ACCURACIES[name]
    cells = []
    for seeds in SEEDS:
        values, truths = draw(np.random.default_rng(1), _ORACLE_TABLES, seeds)
        oracle = float(np.quantile(np.abs(np.diff(values.mean(axis=-1))[:, 0] - truths), 0.95))
        tables, truths = draw(np.random.default_rng([list(ACCURACIES).index(name), seeds]), trials, seeds)
        held, widths = [], []
        for sides, truth in zip(tables.tolist(), truths.tolist(), strict=True):
            (row,) = _compare(_sweep(sides, are_paired=are_paired))
            held.append(row["ci_low"] <= truth <= row["ci_high"])
            widths.append((row["ci_high"] - row["ci_low"]) / 2)
        cells.append(f"{share(held, least=0.93)} {np.median(widths) / oracle:.2f}")
    return name, cells, "93%"


def _compare(sweep: SweepContents) -> Sequence[ComparisonRow]:
    return compare(sweep, None, CompareOptions(axis="lr", metric="val_accuracy")).rows


def _sweep(cells: Sequence[Sequence[float]], *, are_paired: bool = True) -> SweepContents:
    return simulated_sweep(
        [
            accurate_run({"lr": lr, "seed": seed if are_paired else len(cells) * seed + lr}, cell[seed])
            for seed in range(len(cells[0]))
            for lr, cell in enumerate(cells)
        ]
    )


def _find_best(cells: Floats, *, are_speeds: bool = False) -> BestCell:
    if not are_speeds:
        return find_best(_sweep(cells.tolist()), None, metric="val_accuracy")
    runs = [
        timed_run({"lr": lr, "seed": seed}, [float(np.exp(speed))] * 2)
        for seed, of_seed in enumerate(cells.T)
        for lr, speed in enumerate(of_seed)
    ]
    return find_best(simulated_sweep(runs), None, metric="samples_per_second")


def best_line(trials: int, *, cells: int, step: float, seeds: int, are_speeds: bool = False) -> Line:
    """Name the cells that may be the best, each of which is worse than the one before by `step` deviations."""
    generator = np.random.default_rng(cells)
    errors = np.random.default_rng(1).normal(0, 1, (_ORACLE_TABLES, cells))
    reach = np.quantile(errors[:, 1:].max(axis=1) - errors[:, 0], 0.95) * _DEVIATION / np.sqrt(seeds)
    levels = -step * _DEVIATION * np.arange(cells)[:, None] + (0.0 if are_speeds else 0.9)
    held, sizes, oracles = [], [], []
    for _ in range(trials):
        values = levels + generator.normal(0, _DEVIATION, (cells, seeds))
        best = _find_best(values, are_speeds=are_speeds)
        named = [each.settings["lr"] for each in (best.winner, *best.rivals)]
        held.append(0 in named)
        sizes.append(len(named))
        means = values.mean(axis=1)
        oracles.append(int((means >= means.max() - reach).sum()))
    what = f"{cells} cells by {'speed' if are_speeds else 'accuracy'}, {seeds} seeds{'' if step else ', all equal'}"
    return what, [share(held, least=0.95), f"{np.mean(sizes):.1f}", f"{np.mean(oracles):.1f}"], "95%"


BESTS: tuple[Callable[[int], Line], ...] = (
    *(partial(best_line, cells=cells, step=0.25, seeds=3) for cells in (3, 10, 20)),
    partial(best_line, cells=10, step=0.25, seeds=5),
    partial(best_line, cells=10, step=0.25, seeds=3, are_speeds=True),
    partial(best_line, cells=10, step=0.0, seeds=3),
)


def optimism_line(trials: int) -> Line:
    """Return by how much the best of equal cells seems too good, and what is said of it."""
    generator = np.random.default_rng(0)
    found = [_find_best(generator.normal(0.9, _DEVIATION, (8, 3))) for _ in range(trials)]
    said = np.mean([each.selection_bias or 0.0 for each in found])
    return (
        "optimism of the best of 8 equal cells",
        [f"{said:.4f} reported, {np.mean([float(each.value) - 0.9 for each in found]):.4f} true"],
        "equal",
    )


def one_collapse_line(trials: int) -> Line:
    """Collapse one seed of a losing cell: what that does to the winner's optimism and to the other rows' widths."""
    generator = np.random.default_rng(0)
    luck, widths = [], []
    for _ in range(trials):
        cells = generator.normal(0.9, _DEVIATION, (8, 3))
        cells = cells[np.argsort(-cells.mean(axis=1))]
        struck = cells.copy()
        struck[-1, 0] = 0.1
        before, after = (_find_best(each) for each in (cells, struck))
        luck.append((after.selection_bias or 0.0) / (before.selection_bias or np.nan))
        spans = [
            [row["ci_high"] - row["ci_low"] for row in _compare(_sweep(each.tolist()))[:-1]] for each in (cells, struck)
        ]
        widths.append(np.median(spans[1]) / np.median(spans[0]))
    figure = f"{np.nanmedian(luck):.2f} times the luck, {np.median(widths):.2f} times the widths"
    return "8 cells, a seed of the last one collapsed: against no collapse", [figure], "near 1"


def claims_line(trials: int) -> Line:
    """Return how often the best is said to be better than the second, where their comparison says nothing."""
    generator = np.random.default_rng(0)
    false = []
    for _ in range(trials):
        values, _ = collapsed(generator, 1, 10)
        sweep = _sweep((values[0] + np.array([[0.0], [0.02]])).tolist())
        best = find_best(sweep, None, metric="val_accuracy")
        (row,) = _compare(sweep)
        ahead = "better" if best.settings["lr"] == row["candidate"] else "worse"
        false.append(best.verdict in DIFFERENT and row["verdict"] != ahead)
    return "best claims what compare does not: 10 seeds, a tenth of them collapsed", [share(false)], "never"


def mean_over_pairs_line(trials: int, *, shared: float) -> Line:
    """Average eight pairs whose seeds move all of them."""
    generator, held = np.random.default_rng(0), []
    for _ in range(trials):
        effects = generator.normal(0, _DEVIATION, (8, 5)) + generator.normal(0, shared, 5)
        pairs = [
            make_contrast([[0.0]] * 5, [[value] for value in each], is_ratio=False, are_paired=True)
            for each in effects.tolist()
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
        held.append(found.low <= 0 <= found.high)
    what = f"8 pairs, noise of 1% per run and {shared:.0%} per seed, 5 seeds: the interval of their mean covers"
    return what, [share(held, least=0.93)], "at least 93%"


def uneven_line(trials: int, *, deviations: Sequence[float], seeds: int, what: str) -> Line:
    """Compare equal cells, some of them far noisier, with the first one."""
    generator, false = np.random.default_rng(0), []
    for _ in range(trials):
        cells = 0.5 + generator.normal(0, 1, (len(deviations), seeds)) * np.array(deviations)[:, None]
        false.append(any(not row["ci_low"] <= 0 <= row["ci_high"] for row in _compare(_sweep(cells.tolist()))))
    return f"{what}, {seeds} seeds: a false interval", [share(false, most=0.06)], "at most 6%"


OTHERS: tuple[Callable[[int], Line], ...] = (
    optimism_line,
    one_collapse_line,
    claims_line,
    partial(mean_over_pairs_line, shared=0.01),
    partial(mean_over_pairs_line, shared=0.02),
    *(
        partial(
            uneven_line,
            deviations=[0.001] * 11 + [0.03] * 10,
            seeds=seeds,
            what="accuracies, half of 20 candidates 30 times as noisy",
        )
        for seeds in (3, 5)
    ),
    partial(
        uneven_line, deviations=[0.002] * 4 + [0.03], seeds=3, what="accuracies, one of 4 candidates 15 times as noisy"
    ),
)
