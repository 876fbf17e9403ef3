"""Check that `channels_last=auto` and `micro_batch=auto`, the defaults, are never slower than the plain way on a CPU.

Each side is a run in a process of its own on random images in memory; the sides differ in these two settings only.
Where the rule keeps the plain way, both sides compute the same, and the ratio shows the noise.
"""

import argparse
import tempfile
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule
from benchmarks.mnist_sides import serve_our_epochs
from benchmarks.our_training import PLAIN_STEPS
from benchmarks.rows import Budget, Row, ratio_row
from benchmarks.side_processes import Turns, run_sides_interleaved

__all__ = ["CASES", "measure", "settings_of"]

_IMAGES_OF_DIGITS, _COLOUR_IMAGES = "dataset.in_shape=[1,28,28]", "dataset.in_shape=[3,32,32]"
_RESNET = ("model=torchvision", "model.architecture=resnet18", _COLOUR_IMAGES)
_MOBILENET = ("model=torchvision", "model.architecture=mobilenet_v2", _COLOUR_IMAGES)
# A vision transformer: images of 32x32 are four patches of 16x16.
_TRANSFORMER = ("model=torchvision", "model.architecture=vit_b_16", "model.input_size=32", _COLOUR_IMAGES)

CASES: dict[str, tuple[tuple[str, ...], dict[int, int]]] = {
    "cnn": (("model=cnn", _IMAGES_OF_DIGITS), {100: 20_000, 1000: 20_000, 10_000: 20_000}),
    "mlp": (("model=mlp", _IMAGES_OF_DIGITS), {100: 40_000, 1000: 40_000, 10_000: 40_000}),
    "mlp with 2,048 hidden units": (("model=mlp", "model.hidden=[2048]", _IMAGES_OF_DIGITS), {1000: 20_000}),
    "resnet18": (_RESNET, {100: 400, 1000: 1000}),
    "mobilenet_v2": (_MOBILENET, {100: 400}),
    "vit_b_16": (_TRANSFORMER, {50: 100}),
}
"""The settings of each model, and the samples of an epoch by batch size."""

_WAYS = {"auto": (), "plain": PLAIN_STEPS}
_BUDGET = Budget(0.97, is_minimum=True)
_STOPPING_RULE = StoppingRule(min_rounds=6, max_rounds=12, max_seconds=40, half_width=0.02)
"""For each case and batch size."""


def settings_of(way: str, case: str, batch_size: int) -> tuple[str, ...]:
    """Return the settings of a side's run."""
    model, samples = CASES[case]
    data = ("dataset=fake", f"dataset.size={samples[batch_size]}", "dataset.val_size=100", "loader=resident")
    return (*data, *model, f"batch_size={batch_size}", "device=cpu", "tensorboard.enabled=false", *_WAYS[way])


def measure(settings: Settings) -> list[Row]:
    """Return a row for each model and batch size: the plain way's epoch time over that of `auto`."""
    return [_row(settings, case, batch_size) for case, (_, samples) in CASES.items() for batch_size in samples]


def _row(settings: Settings, case: str, batch_size: int) -> Row:
    sides = {way: ("-m", "benchmarks.automatic_steps", "--side", way, case, str(batch_size)) for way in _WAYS}
    with tempfile.TemporaryDirectory() as folder:
        seconds = run_sides_interleaved(
            sides, folder=Path(folder), stopping_rule=settings.stopping_rule, seed=settings.seed
        )
    what = f"{case}, batch size {batch_size}: plain / auto"
    row, _ = ratio_row(what, ours=seconds["auto"], other=seconds["plain"], budget=_BUDGET, inverse=True)
    return row


def main() -> None:
    """Run the benchmark, or serve a side of it: `--side WAY CASE BATCH_SIZE`."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--side", nargs=3)
    options, others = parser.parse_known_args()
    if options.side:
        way, case, batch_size = options.side
        serve_our_epochs(settings_of(way, case, int(batch_size)), Turns())
    else:
        run_benchmark("automatic_steps", measure, summary=__doc__, stopping_rule=_STOPPING_RULE, argv=others)


if __name__ == "__main__":
    main()
