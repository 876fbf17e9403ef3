"""Accuracy of warm-up detection on simulated runs with known warm-up.

`python -m benchmarks.warmup_truth --write` takes a minute and writes its figures to docs/measurement_evidence.md. To
simulate another shape, add it to `SHAPES`: the step time of each epoch relative to settled epochs, and the number of
warm-up epochs.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.noise_models import Floats, autoregressive
from benchmarks.page import MEASUREMENT, write_section
from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.lifecycle.run_epochs import Warmup

_STEPS = 40
_BATCH = 32


@dataclass(frozen=True)
class Shape:
    """Relative step times by epoch, number of warm-up epochs, and relative step time of an epoch's first half."""

    name: str
    levels: Sequence[float]
    warmup: int = 1
    first_half: float = 1.0
    noise: Callable[[np.random.Generator, int], Floats] = lambda generator, count: generator.normal(0, 0.03, count)


def drifting(generator: np.random.Generator, count: int) -> Floats:
    """Draw AR(1) noise with coefficient 0.9 and standard deviation 5%."""
    return autoregressive(generator.normal(0, 0.05, count), 0.9)


def with_outliers(generator: np.random.Generator, count: int) -> Floats:
    """Draw Student's t with 3 degrees of freedom and standard deviation 5%."""
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
    Shape("work that shrinks by 8% an epoch", [0.92**epoch for epoch in range(12)]),
    Shape("the same, and within each epoch", [0.92**epoch for epoch in range(12)], first_half=1.4),
    Shape("work that grows by 8% an epoch", [1.08**epoch for epoch in range(12)]),
    Shape("50% slower in epochs 5 to 7 of 12", [1.0] * 4 + [1.5] * 3 + [1.0] * 5),
    Shape("50% slower from epoch 9 of 12", [1.0] * 8 + [1.5] * 4),
    Shape("batches sorted by length", [1.0] * 8, first_half=1.6),
]


def warm_epochs(shape: Shape, generator: np.random.Generator) -> int:
    """Return the number of epochs detected as warm-up in a simulated run."""
    warmup = Warmup(1)
    half = [shape.first_half] * (_STEPS // 2) + [1.0] * (_STEPS // 2)
    for index, (level, noise) in enumerate(zip(shape.levels, shape.noise(generator, len(shape.levels)), strict=True)):
        steps = [float(level * np.exp(noise) * part) for part in half]
        warmup.judge(EpochRecord(epoch=index + 1, samples=_STEPS * _BATCH), steps)
    return len(warmup.epochs)


def table(*, trials: int, seed: int) -> str:
    """Run the simulation and format the shares as a Markdown table."""
    lines = [
        "| a run that is | warm-up kept | real epochs dropped |",
        "| --- | ---: | ---: |",
    ]
    for number, shape in enumerate(SHAPES):
        generator = np.random.default_rng(seed + number)
        found = [warm_epochs(shape, generator) for _ in range(trials)]
        real = len(shape.levels) - shape.warmup
        kept = sum(max(0, shape.warmup - each) for each in found) / (shape.warmup * trials)
        dropped = sum(max(0, each - shape.warmup) for each in found) / (real * trials)
        lines.append(f"| {shape.name} | {kept:.1%} | {dropped:.1%} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Run the simulation and print the table; with --write, update the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="trials per shape (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write the table to docs/measurement_evidence.md")
    options = parser.parse_args()
    text = table(trials=options.trials, seed=options.seed)
    text += f"\n`python -m benchmarks.warmup_truth --trials {options.trials} --seed {options.seed}`.\n"
    print(text)
    if options.write:
        write_section(MEASUREMENT, "warmup_truth", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
