"""Whether warm-up is found where it is and nowhere else: epochs of simulated runs whose warm-up is known.

`python -m benchmarks.warmup_truth --write` takes a minute and writes its figures into docs/measurement.md. Who wants
another shape adds it to `SHAPES`: how many times as long as settled each epoch takes a step, and how many are warm-up.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from benchmarks.page import MEASUREMENT, write_section
from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.timing.warmup import Warmup, has_settled

_STEPS = 40
_BATCH = 32

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shape:
    """How long a run's epochs take for a step, how many are warm-up, and how much slower an epoch's first half is."""

    name: str
    levels: Sequence[float]
    warmup: int = 1
    first_half: float = 1.0
    noise: Callable[[np.random.Generator, int], Floats] = lambda generator, count: generator.normal(0, 0.03, count)


def drifting(generator: np.random.Generator, count: int) -> Floats:
    """An autoregression: 0.9 of the epoch before, 5% in all."""
    values = generator.normal(0, 0.05, count)
    for at in range(1, count):
        values[at] = 0.9 * values[at - 1] + np.sqrt(1 - 0.81) * values[at]
    return values


def with_outliers(generator: np.random.Generator, count: int) -> Floats:
    """Student's t with 3 degrees of freedom, 5% in all."""
    values: Floats = 0.05 * generator.standard_t(3, count) / np.sqrt(3)
    return values


SHAPES = [
    Shape("steady, 8 epochs", [1.5] + [1.0] * 7),
    Shape("steady, drifting by 5%", [1.5] + [1.0] * 7, noise=drifting),
    Shape("steady, outliers of 5%", [1.5] + [1.0] * 7, noise=with_outliers),
    Shape("twice as slow for 3 of 8 epochs", [2.0] * 3 + [1.0] * 5, warmup=3),
    Shape("twice as slow for 3 of 20 epochs", [2.0] * 3 + [1.0] * 17, warmup=3),
    Shape("a quarter slower for 4 of 12 epochs", [1.25] * 4 + [1.0] * 8, warmup=4),
    Shape("settling: 3, 2, 1.4 times as long, then 1", [3.0, 2.0, 1.4] + [1.0] * 7, warmup=3),
    Shape("work that shrinks by 8% an epoch", [0.92**at for at in range(12)]),
    Shape("the same, and within each epoch", [0.92**at for at in range(12)], first_half=1.4),
    Shape("work that grows by 8% an epoch", [1.08**at for at in range(12)]),
    Shape("half as slow again in epochs 5 to 7 of 12", [1.0] * 4 + [1.5] * 3 + [1.0] * 5),
    Shape("half as slow again from epoch 9 of 12 on", [1.0] * 8 + [1.5] * 4),
    Shape("batches sorted by length", [1.0] * 8, first_half=1.6),
]


def warm_epochs(shape: Shape, generator: np.random.Generator) -> tuple[int, int]:
    """How many of a simulated run's first epochs are taken for warm-up, by the rule of before and that of now."""
    warmup, num_before = Warmup(1), 0
    earlier: list[float] = []
    half = [shape.first_half] * (_STEPS // 2) + [1.0] * (_STEPS // 2)
    for at, (level, noise) in enumerate(zip(shape.levels, shape.noise(generator, len(shape.levels)), strict=True)):
        steps = [float(level * np.exp(noise) * part) for part in half]
        warmup.judge(EpochRecord(epoch=at + 1, samples=_STEPS * _BATCH), steps)
        if num_before == at and (at == 0 or _was_warm(steps, earlier)):
            num_before = at + 1
        earlier = steps
    return num_before, len(warmup.epochs)


def _was_warm(steps: Sequence[float], earlier: Sequence[float]) -> bool:
    """The rule of before: an epoch by itself, as long as its typical step is faster than in the one before."""
    return not has_settled(steps) and median(steps) < 0.95 * median(earlier)


def table(*, trials: int, seed: int) -> str:
    """The shares as a table in Markdown."""
    lines = [
        "| a run that is | warm-up kept, before | now | wanted | real epochs dropped, before | now | wanted |",
        "| --- | ---: | ---: | --- | ---: | ---: | --- |",
    ]
    for number, shape in enumerate(SHAPES):
        generator = np.random.default_rng(seed + number)
        found = [warm_epochs(shape, generator) for _ in range(trials)]
        real = len(shape.levels) - shape.warmup
        kept = [sum(max(0, shape.warmup - each[rule]) for each in found) / (shape.warmup * trials) for rule in (0, 1)]
        dropped = [sum(max(0, each[rule] - shape.warmup) for each in found) / (real * trials) for rule in (0, 1)]
        lines.append(
            f"| {shape.name} | {kept[0]:.1%} | {kept[1]:.1%} | at most 5% "
            f"| {dropped[0]:.1%} | {dropped[1]:.1%} | at most 5% |"
        )
    return "\n".join([*lines, ""])


def main() -> int:
    """Simulate, and print the table or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="of each shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurement.md")
    options = parser.parse_args()
    text = table(trials=options.trials, seed=options.seed)
    text += f"\n`python -m benchmarks.warmup_truth --trials {options.trials} --seed {options.seed}`.\n"
    print(text)
    if options.write:
        write_section(MEASUREMENT, "warmup_truth", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
