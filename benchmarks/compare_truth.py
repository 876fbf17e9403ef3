"""Error rates of comparisons on simulated runs: coverage, widths, false verdicts, power, families, and the best cell.

`python -m benchmarks.compare_truth --write` takes some minutes and writes its tables to docs/measurement_evidence.md.
The noise comes from `noise_models.py`. A figure in bold misses its target.
"""

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.accuracy_simulation import ACCURACIES, BESTS, OTHERS, SEEDS, accuracy_line
from benchmarks.crossing_simulation import crossing_lines
from benchmarks.noise_models import KEPT_BACK, MODELS, NoiseModel, normal
from benchmarks.page import MEASUREMENT, describe_machine, source_line, write_section
from benchmarks.rows import heading_lines, table_line
from benchmarks.simulated_runs import Line, estimate_speedups, marked, share, simulated_sweep, timed_run, verdict_of
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions, ComparisonRow, MeasuredEffect
from runmanager.results.compare.overall_effect import OverallEffect, overall_effect
from runmanager.results.compare.verdict import DIFFERENT, NO_DIFFERENCE
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import Estimate
from runmanager.results.stats.effects import make_contrast, simultaneous_estimates

RUNS = (1, 2, 3, 5, 8, 12)
EFFECTS = (1.03, 1.05, 1.1)
POWER_OF, POWER_RUNS = ("lognormal 1%", "lognormal 2%"), (3, 5, 8)
FAMILIES = (3, 10, 20)
FAMILY_RUNS = 3
FAMILY_NOISE = (
    *("lognormal 1%", "lognormal 5%", "AR(1) 0.9 epochs", "one run in ten 15% slow", "sides 1% and 4%"),
    "10% drift, in turns",
)

_WIDEST = {3: 2.0, 5: 1.5, 8: 1.4}
_NARROW = ("lognormal 0.5%", "lognormal 1%", "lognormal 2%", "lognormal 5%", "AR(1) 0.9 epochs")
_TWO_MODES = "every other run 15% slow"
_MOST_FALSE = 0.06
_LEAST_POWER = {
    "a true 5% is found: lognormal 1%": (3, 0.9),
    "a true 3% is found: lognormal 1%": (5, 0.9),
    "equal sides are `no difference`: lognormal 1%": (5, 0.8),
}


@dataclass(frozen=True)
class Cell:
    """Comparisons of equal sides: shares of intervals that cover 1, and of verdicts; and their median width.

    `width` is over the oracle's. `found` is the share of verdicts `faster` by the true effect.
    """

    covered: float
    width: float
    false: float
    equal: float
    found: Mapping[float, float]


def _models() -> dict[str, NoiseModel]:
    return MODELS | KEPT_BACK


def simulate(name: str, runs: int, trials: int) -> Cell:
    """Simulate tables of two equal sides. Single runs cannot take turns."""
    model, generator = _models()[name], np.random.default_rng([list(_models()).index(name), runs])
    is_blocked = model.is_blocked or runs == 1
    times = model.times(2, runs).tolist()
    tables = np.exp(model.tables(generator, (trials, 2, runs))).tolist()
    found = [estimate_speedups(sides, times, is_blocked=is_blocked)[0] for sides in tables]
    verdicts = [verdict_of(each, is_blocked=is_blocked) for each in found]
    return Cell(
        mean(each.low <= 1 <= each.high for each in found),
        median(math.log(each.high / each.low) / 2 for each in found) / model.oracle(2, runs),
        mean(each in DIFFERENT for each in verdicts),
        verdicts.count(NO_DIFFERENCE) / trials,
        {
            effect: mean(verdict_of(_scaled(each, effect), is_blocked=is_blocked) == "faster" for each in found)
            for effect in EFFECTS
        },
    )


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    """Return the interval of the same runs with a candidate `factor` times as fast."""
    return Estimate(*(factor * end for end in (estimate.value, estimate.low, estimate.high)))


def noise_line(name: str, cells: Sequence[Cell]) -> Line:
    """Return coverage and width by the number of runs, and the highest share of false verdicts."""
    figures = []
    for runs, cell in zip(RUNS, cells, strict=True):
        least = {1: 0.0, 2: 0.84 if name == _TWO_MODES else 0.91}.get(runs, 0.93)
        widest = _WIDEST.get(runs, math.inf) if name in _NARROW else math.inf
        covered = marked(cell.covered, is_missed=cell.covered < least)
        figures.append(f"{covered} {marked(cell.width, is_missed=cell.width > widest, form='.2f')}")
    false = max(cell.false for runs, cell in zip(RUNS, cells, strict=True) if runs >= min(_WIDEST))
    wanted = f"widths {', '.join(map(str, _WIDEST.values()))}" if name in _NARROW else ""
    return name, [*figures, marked(false, is_missed=false > _MOST_FALSE)], wanted


def power_lines(cells: Mapping[tuple[str, int], Cell]) -> Iterator[Line]:
    """Yield how often a true effect gets its verdict, and how often equal sides do."""
    for name, effect in product(POWER_OF, (*EFFECTS, None)):
        what = f"a true {effect - 1:.0%} is found" if effect else "equal sides are `no difference`"
        at, least = _LEAST_POWER.get(f"{what}: {name}", (0, 0.0))
        figures = []
        for runs in POWER_RUNS:
            cell = cells[name, runs]
            found = cell.found[effect] if effect else cell.equal
            figures.append(marked(found, is_missed=runs == at and found < least))
        yield f"{what}: {name}", figures, f"{least:.0%} by {at}" if at else ""


def family_line(trials: int, *, name: str) -> Line:
    """Compare equal cells with the first one: how often all intervals hold, and their median width over the oracle's.

    The oracle of unequal cells is that of the noisier ones, so their widths are not comparable.
    """
    return name, [_family(trials, name, cells) for cells in FAMILIES], "93%, 1.5" if name in _NARROW else "93%"


def _family(trials: int, name: str, cells: int) -> str:
    model, generator = MODELS[name], np.random.default_rng([list(MODELS).index(name), cells])
    times = model.times(cells, FAMILY_RUNS).tolist()
    tables = np.exp(model.tables(generator, (trials, cells, FAMILY_RUNS))).tolist()
    found = [estimate_speedups(sides, times) for sides in tables]
    covered = mean(all(each.low <= 1 <= each.high for each in rows) for rows in found)
    width = median(math.log(each.high / each.low) / 2 for rows in found for each in rows)
    width /= model.oracle(cells, FAMILY_RUNS)
    is_wide = name in _NARROW and width > 1.5
    return f"{marked(covered, is_missed=covered < 0.93)} {marked(width, is_missed=is_wide, form='.2f')}"


def through_records(trials: int) -> Line:
    """Simulate 20 equal candidates with stored runs and `compare`: 3 interleaved seeds, 3% between runs."""
    generator, false = np.random.default_rng(0), []
    for _ in range(trials):
        rates = np.exp(normal(0.03)(generator, (1, 3, 21)))[0].tolist()
        runs = [
            timed_run({"lr": lr, "seed": seed}, [rate] * 2)
            for seed, of_seed in enumerate(rates)
            for lr, rate in enumerate(of_seed)
        ]
        rows = compare(simulated_sweep(runs), None, CompareOptions(axis="lr")).rows
        false.append(any(row["verdict"] in ("faster", "slower") for row in rows))
    return (
        "20 equal candidates from stored runs, 3 seeds, 3% apart: a false verdict",
        [share(false, most=0.06)],
        "at most 6%",
    )


def many_pairs(trials: int) -> Iterator[Line]:
    """Simulate eight pairs with one effect, and eight whose effect depends on one of two settings."""
    agreed, covered, named = [], [], []
    for seed in range(trials):
        same, differing = (_over_pairs(seed, effects) for effects in ((1.1,) * 4, (1.0, 1.1, 1.2, 1.3)))
        agreed.append(not same.agrees)
        covered.append(same.estimate.low <= 1.1 <= same.estimate.high)
        named.append(not differing.agrees and differing.setting == "a")
    yield "8 equal pairs reported as disagreeing", [share(agreed, most=0.06)], "at most 6%"
    yield "their geometric mean's interval covers the truth", [share(covered, least=0.93)], "at least 93%"
    yield (
        "8 pairs of 1.0 to 1.3 by one of two settings: the setting is named",
        [share(named, least=0.9)],
        "at least 90%",
    )


def _over_pairs(seed: int, effects: Sequence[float]) -> OverallEffect:
    """Compare five runs a side at four values of `a` and two of `b`; the effect depends on `a`."""
    settings = [(a, b) for a in range(4) for b in range(2)]
    speeds = np.exp(normal(0.02)(np.random.default_rng(seed), (len(settings), 2, 5)))
    speeds[:, 1] *= np.array([effects[a] for a, _ in settings])[:, None]
    found = simultaneous_estimates([make_contrast(*pair, is_ratio=True) for pair in speeds[..., None].tolist()])
    rows = [
        ComparisonRow(
            {"a": a, "b": b, "verdict": verdict_of(each)},
            metric=THROUGHPUT,
            effect=MeasuredEffect(each, 0.0, 0.03, {}),
            is_stand_in=False,
        )
        for (a, b), each in zip(settings, found, strict=True)
    ]
    return overall_effect(rows, ("a", "b"))


def _crossings(trials: int) -> list[Line]:
    return list(crossing_lines(trials))


def _many_pairs(trials: int) -> list[Line]:
    return list(many_pairs(trials))


Part = Callable[[int], Line | list[Line]]

PARTS: dict[str, tuple[int, tuple[str, ...], Sequence[Part]]] = {
    "compare_families": (
        3,
        tuple(f"{cells} cells" for cells in FAMILIES),
        [partial(family_line, name=name) for name in FAMILY_NOISE],
    ),
    "compare_best": (3, ("holds the best", "size", "oracle's size"), BESTS),
    "compare_accuracies": (
        3,
        tuple(f"{seeds} seeds" for seeds in SEEDS),
        [partial(accuracy_line, name) for name in ACCURACIES],
    ),
    "compare_others": (10, ("found",), [through_records, _many_pairs, _crossings, *OTHERS]),
}
"""The tables besides those of noise models and power: what divides the trials, the columns, what simulates the rows."""


def tables(trials: int, mapped: Callable[..., Iterable[Any]]) -> Iterator[tuple[str, list[str]]]:
    """Run all simulations by `mapped`, a `map`; yield the name of each section of the page, and its lines."""
    keys = [(name, runs) for name in _models() for runs in RUNS]
    cells = dict(zip(keys, mapped(simulate, *zip(*keys, strict=True), [trials] * len(keys)), strict=True))
    columns = (*(f"{runs} run{'s' if runs > 1 else ''}" for runs in RUNS), "false verdicts")
    for section, names in (("compare_truth", MODELS), ("compare_kept_back", KEPT_BACK)):
        if names:
            lines = [noise_line(name, [cells[name, runs] for runs in RUNS]) for name in names]
            yield section, table(columns, lines)
    yield "compare_power", table([f"{runs} runs" for runs in POWER_RUNS], power_lines(cells))
    for section, (divisor, columns, parts) in PARTS.items():
        found = mapped(_call, parts, [max(1, trials // divisor)] * len(parts))
        yield section, table(columns, [line for lines in found for line in lines])


def _call(part: Part, trials: int) -> list[Line]:
    found = part(trials)
    return found if isinstance(found, list) else [found]


def table(columns: Sequence[str], lines: Iterable[Line]) -> list[str]:
    """Format a table, without the last column where nothing is wanted of any row."""
    rows = [(what, *figures, wanted) for what, figures, wanted in lines]
    end = None if any(row[-1] for row in rows) else -1
    return [*heading_lines(("simulated", *columns, "wanted")[:end]), *(table_line(row[:end]) for row in rows)]


def main() -> None:
    """Run all simulations, print each table and, with --write, update the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="tables per number of runs (default: 1000)")
    parser.add_argument("--write", action="store_true", help="write the tables to docs/measurement_evidence.md")
    options = parser.parse_args()
    source = source_line(f"python -m benchmarks.compare_truth --trials {options.trials}", machine=describe_machine())
    with ProcessPoolExecutor(2) as pool:
        for section, lines in tables(options.trials, pool.map):
            text = "\n".join([*lines, *(["", source] if section == [*PARTS][-1] else []), ""])
            print(text, flush=True)
            if options.write:
                write_section(MEASUREMENT, section, text)


if __name__ == "__main__":
    main()
