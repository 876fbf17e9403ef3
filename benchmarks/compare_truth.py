"""Error rates of comparisons on simulated runs: coverage, false verdicts, power, and results over many rows.

`python -m benchmarks.compare_truth --write` takes some minutes and writes its figures to docs/measurement_evidence.md.
The noise comes from `noise_models.py`. `BEFORE` holds the results of version 0.1 in the same simulations: a bootstrap
over runs and epochs, and a tolerance of 10% below five runs per side.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import mean

import numpy as np

from benchmarks.crossing_simulation import crossing_lines
from benchmarks.noise_models import MODELS, ratings
from benchmarks.page import MEASUREMENT, describe_machine, source_line, write_section
from benchmarks.simulated_runs import accurate_run, simulated_sweep, timed_run
from benchmarks.uneven_simulation import uneven_lines
from runmanager.records.storage.reader import SweepContents
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import ComparisonRow, MeasuredEffect
from runmanager.results.compare.options import CompareOptions
from runmanager.results.compare.overall_effect import OverallEffect, overall_effect
from runmanager.results.compare.verdict import DIFFERENT, NO_DIFFERENCE, verdict
from runmanager.results.findings.best import find_best
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import Estimate
from runmanager.results.stats.effects import RunValue, make_contrast, run_values, simultaneous_estimates

DEVIATIONS = (0.0, 0.01, 0.03, 0.05)
MAX_RUNS = 20
EFFECT = 1.1
CANDIDATES = 20

Side = list[list[float]]
Runs = Sequence[RunValue]

DESIGNS = {"blocks": True, "two samples": False}

_GRID_BEFORE = {
    "normal epochs": ("96.2% (28.0%)", "1.9% (13.0%)", "100%", "20.2 points (37.0)", "13.2% (69.7%)"),
    "AR(1) 0.9 epochs": ("94.1% (10.0%)", "2.1% (9.0%)", "100%", "38.0 points (45.0)", "19.7% (75.8%)"),
    "t3 epochs": ("96.9% (26.0%)", "1.2% (7.0%)", "100%", "16.5 points (32.0)", "11.7% (75.8%)"),
    "two modes of runs": ("94.3% (16.0%)", "4.2% (41.0%)", "32%", "29.8 points (48.0)", "35.8% (100%)"),
}
"""Results of version 0.1 from 100 tables per cell, worst cells in brackets; it did not distinguish the designs."""

_OTHERS_BEFORE = {
    "interval of one run a side": "a factor of 1.01 to 1.03, of the epochs alone",
    "three seeds rounded to 1/500, a run sd of a tenth of that: coverage": "27.0%",
    "optimism of the best of 8 equal cells": "not reported, 0.0084 true",
    "best claims what compare does not: 10 seeds, a tenth of them collapsed": "9.5%",
    "equal curves, 2 to 9 points: a crossing is reported": "76.3% (99.8%)",
    "curves a constant 2% apart, 2 to 9 points: a crossing is reported": "51.5% (77.0%)",
    "two crossings are both reported, each in its place": "0.0%",
    "one crossing is reported and its interval covers it: power laws": "96.2%",
    "one crossing is reported and its interval covers it: latency and work": "96.0%",
}


def _before() -> Iterator[tuple[str, str]]:
    """Yield the results of version 0.1 by the labels of today's rows."""
    yield from _OTHERS_BEFORE.items()
    for model, (covered, false, found, lost, sweeps) in _GRID_BEFORE.items():
        for design in DESIGNS:
            what = f"{model}, {design}"
            yield f"coverage: {what}", covered
            yield f"false verdicts: {what}", false
            if "two modes" not in model:
                yield f"a true 10% found, 5 runs a side, run sd up to 1%: {what}", found
            yield f"power lost by one more run: {what}", lost
            yield f"a true 10% called no difference, worst cell: {what}", "100%"
            yield f"sweeps of 20 equal candidates with a false verdict: {what}", sweeps


BEFORE: Mapping[str, str] = dict(_before())


@dataclass(frozen=True)
class Row:
    """A table row: what was simulated, the number of trials, the result now, and the target."""

    what: str
    trials: int
    now: str
    wanted: str

    def __str__(self) -> str:
        return f"| {self.what} | {self.trials:,} | {BEFORE.get(self.what, '')} | {self.now} | {self.wanted} |"


def values_of(side: Side) -> list[RunValue]:
    """Return the values by which the runs of a side count, as in `compare`."""
    return run_values(side, is_ratio=True)


def interval_of(baseline: Runs, candidate: Runs, are_paired: bool) -> Estimate:
    """Return the interval of a comparison with one row."""
    return simultaneous_estimates([make_contrast(baseline, candidate, is_ratio=True, are_paired=are_paired)])[0]


def verdict_of(estimate: Estimate, runs: int) -> str:
    """Return the verdict on interleaved sides; with one run per side, which cannot interleave, allow for drift."""
    options = CompareOptions()
    drift = options.drift if runs == 1 else 0.0
    return verdict(THROUGHPUT, estimate.interval, tolerance=drift, margin=options.margin_of("speedup"))


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """Return the interval of the same runs with a candidate `factor` times as fast."""
    return Estimate(*(factor * end for end in (estimate.value, estimate.low, estimate.high)))


@dataclass(frozen=True)
class Cell:
    """Shares of tables: interval covers the truth, equal sides differ, a true 10% is found, or is called equal."""

    covered: float
    false: float
    found: float
    called_equal: float


Cells = dict[tuple[float, int], Cell]


def simulate_cells(model: str, deviation: float, trials: int) -> dict[str, Cells]:
    """Simulate tables of two equal sides with 1 to 20 runs each, by design; n runs are the first n of 20."""
    generator = np.random.default_rng([round(1000 * deviation), list(MODELS).index(model)])
    tables = np.exp(MODELS[model](generator, deviation, (trials, 2, MAX_RUNS))).tolist()
    known = [(values_of(low), values_of(high)) for low, high in tables]
    counts = range(1, MAX_RUNS + 1)
    return {
        name: {(deviation, runs): _cell(known, runs, are_paired) for runs in counts}
        for name, are_paired in DESIGNS.items()
    }


def _cell(tables: Sequence[tuple[Runs, Runs]], runs: int, are_paired: bool) -> Cell:
    equal = [interval_of(low[:runs], high[:runs], are_paired) for low, high in tables]
    faster = [verdict_of(scaled(each, EFFECT), runs) for each in equal]
    return Cell(
        mean(each.low <= 1 <= each.high for each in equal),
        mean(verdict_of(each, runs) in ("faster", "slower") for each in equal),
        mean(each == "faster" for each in faster),
        mean(each == NO_DIFFERENCE for each in faster),
    )


def grid(trials: int) -> Iterator[Row]:
    """Simulate one to twenty runs per side, for each noise model and deviation between runs."""
    cases = [(model, deviation) for model in MODELS for deviation in DEVIATIONS]
    of_case: dict[tuple[str, str], Cells] = {(design, model): {} for design in DESIGNS for model in MODELS}
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(simulate_cells, *zip(*cases, strict=True), [trials] * len(cases))
        for (model, _), of_designs in zip(cases, found, strict=True):
            for design, cells in of_designs.items():
                of_case[design, model].update(cells)
    for (design, model), cells in of_case.items():
        yield from rows_of_grid(f"{model}, {design}", cells, trials)


def rows_of_grid(what: str, cells: Cells, trials: int) -> Iterator[Row]:
    """Yield the rows of a noise model and a design."""
    number = trials * len(cells)
    covered, false = [each.covered for each in cells.values()], [each.false for each in cells.values()]
    worst = f"{mean(covered):.1%} ({min(covered):.1%})"
    yield Row(f"coverage: {what}", number, worst, "at least 93%")
    yield Row(f"false verdicts: {what}", number, f"{mean(false):.1%} ({max(false):.1%})", "at most 6%")
    if "two modes" not in what:
        powers = [cells[deviation, 5].found for deviation in (0.0, 0.01)]
        power = f"{min(powers):.1%}"
        yield Row(f"a true 10% found, 5 runs a side, run sd up to 1%: {what}", trials, power, "at least 90%")
    steps = {
        (deviation, runs): cells[deviation, runs].found - cells[deviation, runs + 1].found
        for deviation in DEVIATIONS
        for runs in range(1, MAX_RUNS)
    }
    pooled = max(mean(steps[deviation, runs] for deviation in DEVIATIONS) for runs in range(1, MAX_RUNS))
    lost = f"{max(pooled, 0.0) * 100:.1f} points ({max(*steps.values(), 0.0) * 100:.1f})"
    yield Row(f"power lost by one more run: {what}", trials, lost, "at most 3 points")
    called_equal = max(each.called_equal for each in cells.values())
    yield Row(
        f"a true 10% called no difference, worst cell: {what}", trials, f"{called_equal:.1%}", "as few as possible"
    )


def one_run(trials: int) -> Iterator[Row]:
    """Measure the width of the interval with one run per side."""
    low, high = np.exp(MODELS["normal epochs"](np.random.default_rng(0), 0.01, (2, 1))).tolist()
    found = interval_of(values_of(low), values_of(high), False)
    yield Row("interval of one run a side", 1, f"a factor of {found.high / found.value:.2f}", "finite, within 1.4")


def equal_candidates(trials: int) -> Iterator[Row]:
    """Simulate twenty candidates equal to the baseline and count sweeps with any false verdict."""
    trials = max(1, trials // 10)
    for design, are_paired in DESIGNS.items():
        for model in MODELS:
            shares = [
                mean(false_sweep(model, deviation, runs, are_paired, seed) for seed in range(trials))
                for deviation in DEVIATIONS
                for runs in (1, 2, 3, 5, 10)
            ]
            share = f"{mean(shares):.1%} ({max(shares):.1%})"
            what = f"sweeps of 20 equal candidates with a false verdict: {model}, {design}"
            yield Row(what, trials * len(shares), share, "at most 6%")


def false_sweep(model: str, deviation: float, runs: int, are_paired: bool, seed: int) -> bool:
    """Return whether a sweep of equal candidates has a false verdict."""
    generator = np.random.default_rng([seed, runs, round(1000 * deviation)])
    baseline, *others = map(values_of, np.exp(MODELS[model](generator, deviation, (CANDIDATES + 1, runs))).tolist())
    found = simultaneous_estimates(
        [make_contrast(baseline, other, is_ratio=True, are_paired=are_paired) for other in others]
    )
    return any(verdict_of(each, runs) in ("faster", "slower") for each in found)


def through_records(trials: int) -> Iterator[Row]:
    """Simulate equal candidates with stored runs and `compare`: 3 interleaved seeds, 3% between runs."""
    trials = max(1, trials // 20)
    generator = np.random.default_rng(0)
    false = 0
    for _ in range(trials):
        rates = np.exp(MODELS["normal epochs"](generator, 0.03, (3, CANDIDATES + 1))).tolist()
        runs = [
            timed_run({"lr": lr, "seed": seed}, rate)
            for seed, of_seed in enumerate(rates)
            for lr, rate in enumerate(of_seed)
        ]
        rows = compare(simulated_sweep(runs), None, CompareOptions(axis="lr")).rows
        false += any(row["verdict"] in ("faster", "slower") for row in rows)
    yield Row("the same from stored runs, 3 seeds, run sd 3%", trials, f"{false / trials:.1%}", "at most 6%")


def many_pairs(trials: int) -> Iterator[Row]:
    """Simulate eight pairs with one effect, and eight whose effect depends on one of two settings."""
    agreed, covered, named = [], [], []
    for seed in range(trials):
        same, differing = (_over_pairs(seed, effects) for effects in ((1.1,) * 4, (1.0, 1.1, 1.2, 1.3)))
        agreed.append(same.agrees)
        covered.append(same.estimate.low <= EFFECT <= same.estimate.high)
        named.append(not differing.agrees and differing.setting == "a")
    yield Row("8 equal pairs reported as disagreeing", trials, f"{1 - mean(agreed):.1%}", "at most 6%")
    yield Row("their geometric mean's interval covers the truth", trials, f"{mean(covered):.1%}", "at least 93%")
    what = "8 pairs of 1.0 to 1.3 by one of two settings: the setting is named"
    yield Row(what, trials, f"{mean(named):.1%}", "at least 90%")


def _over_pairs(seed: int, effects: Sequence[float]) -> OverallEffect:
    """Compare five runs per side at four values of `a` and two of `b`; the effect depends on `a`."""
    generator = np.random.default_rng(seed)
    settings = [(a, b) for a in range(4) for b in range(2)]
    rates = np.exp(MODELS["normal epochs"](generator, 0.02, (len(settings), 2, 5)))
    rates[:, 1] *= np.array([effects[a] for a, _ in settings])[:, None, None]
    pairs = [(values_of(low), values_of(high)) for low, high in rates.tolist()]
    contrasts = [make_contrast(low, high, is_ratio=True, are_paired=True) for low, high in pairs]
    rows = [
        ComparisonRow(
            {"a": a, "b": b, "verdict": verdict_of(each, 5)},
            metric=THROUGHPUT,
            effect=MeasuredEffect(each, 0.0, 0.03, {str(index): value for index, value in enumerate(pair.differences)}),
            is_stand_in=False,
        )
        for (a, b), pair, each in zip(settings, contrasts, simultaneous_estimates(contrasts), strict=True)
    ]
    return overall_effect(rows, ("a", "b"))


def best_cells(trials: int) -> Iterator[Row]:
    """Simulate accuracies: rounded by the validation set, the best of several, and with collapsed seeds."""
    generator = np.random.default_rng(0)
    levels = 0.9 + generator.uniform(0, 1 / 500, (trials, 2, 1))
    measured = np.round(500 * (levels + generator.normal(0, 2e-4, (trials, 2, 3)))) / 500
    rows = [_accuracy_row(sides.tolist()) for sides in measured]
    truths = (levels[:, 1] - levels[:, 0]).ravel().tolist()
    covered = mean(row["ci_low"] <= truth <= row["ci_high"] for row, truth in zip(rows, truths, strict=True))
    what = "three seeds rounded to 1/500, a run sd of a tenth of that: coverage"
    yield Row(what, trials, f"{covered:.1%}", "at least 93%")
    trials = max(1, trials // 10)
    estimated, true, held = [], [], []
    for _ in range(trials):
        cells = ratings(generator, (8, 3))
        best = find_best(_accuracy_sweep(cells.tolist()), None, metric="val_accuracy")
        estimated.append(best.selection_bias or 0.0)
        true.append(float(best.value) - 0.9)
        held.append(len(best.rivals) == 7)
    share = f"{mean(estimated):.4f} reported, {mean(true):.4f} true"
    yield Row("optimism of the best of 8 equal cells", trials, share, "equal")
    yield Row("best of 8 equal cells names all 7 others", trials, f"{mean(held):.1%}", "at least 94%")
    false = 0
    for _ in range(trials):
        levels = np.array([[0.0], [0.02]])  # the second cell is a little better, apart from its collapsed seeds
        sweep = _accuracy_sweep((ratings(generator, (2, 10), collapse=0.1) + levels).tolist())
        best = find_best(sweep, None, metric="val_accuracy")
        (row,) = compare(sweep, None, CompareOptions(axis="lr", metric="val_accuracy")).rows
        ahead = "better" if best.settings["lr"] == row["candidate"] else "worse"
        false += best.verdict in DIFFERENT and row["verdict"] != ahead
    what = "best claims what compare does not: 10 seeds, a tenth of them collapsed"
    yield Row(what, trials, f"{false / trials:.1%}", "never")


def _accuracy_sweep(cells: Sequence[Sequence[float]]) -> SweepContents:
    return simulated_sweep(
        [
            accurate_run({"lr": lr, "seed": seed}, cell[seed])
            for seed in range(len(cells[0]))
            for lr, cell in enumerate(cells)
        ]
    )


def _accuracy_row(cells: Sequence[Sequence[float]]) -> ComparisonRow:
    (row,) = compare(_accuracy_sweep(cells), None, CompareOptions(axis="lr", metric="val_accuracy")).rows
    return row


def crossings(trials: int) -> Iterator[Row]:
    """Simulate curves that cross never, once and twice, with 5 seeds per side and 3% between runs."""
    return (Row(*line) for line in crossing_lines(trials))


def uneven_noise(trials: int) -> Iterator[Row]:
    """Simulate noise far above the method's prior, and noise that differs between sides or cells."""
    return (Row(*line) for line in uneven_lines(trials))


PARTS = (one_run, grid, equal_candidates, through_records, many_pairs, uneven_noise, crossings, best_cells)


def main() -> None:
    """Run all simulations, print each row and, with --write, update the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="tables per cell (default: 2000)")
    parser.add_argument("--write", action="store_true", help="write the table to docs/measurement_evidence.md")
    options = parser.parse_args()
    lines = ["| simulated | trials | version 0.1 | now | wanted |", "| --- | ---: | --- | --- | --- |"]
    for part in PARTS:
        for row in part(options.trials):
            print(row, flush=True)
            lines.append(str(row))
    if options.write:
        command = f"python -m benchmarks.compare_truth --trials {options.trials}"
        lines += ["", source_line(command, machine=describe_machine()), ""]
        write_section(MEASUREMENT, "compare_truth", "\n".join(lines))


if __name__ == "__main__":
    main()
