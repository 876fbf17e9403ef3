"""Epoch time of the tutorial and ours with the same network, images, batch size and number of optimiser steps.

Ours uses its default settings, on CUDA its fastest ones, and its seconds come from its record. Further rows show the
share of the machine's fastest matrix product that each side reaches: the time of the epoch's FLOP at that rate,
measured in the same rounds, divided by the epoch's seconds.
"""

import tempfile
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, ratio_of
from benchmarks.mnist_files import MnistFiles, find_or_generate
from benchmarks.mnist_sides import NUM_SAMPLES
from benchmarks.rows import Budget, Row, ratio_row
from benchmarks.side_processes import ROUNDS_PER_PROCESS, run_sides_interleaved

__all__ = ["measure"]

_ON_CPU = {1000: Budget(3, is_minimum=True), 10_000: Budget(4, is_minimum=True)}
_ON_CUDA = dict.fromkeys(_ON_CPU, Budget(50, is_minimum=True))
_SIDES = ("our-epoch", "tutorial-epoch", "ceiling")
_STOPPING_RULE = StoppingRule(min_rounds=6, max_rounds=15, max_seconds=60, half_width=0.02)
"""For each batch size."""


def measure(settings: Settings) -> list[Row]:
    """Return two rows per batch size: epoch times and shares of the ceiling."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = find_or_generate(folder)
        pairs = [_rows(settings, folder, images, batch_size) for batch_size in _ON_CPU]
    return [*(times for times, _ in pairs), *(shares for _, shares in pairs)]


def _rows(settings: Settings, folder: Path, images: MnistFiles, batch_size: int) -> tuple[Row, Row]:
    args = ("--data", str(images.root), "--batch-size", str(batch_size), "--device", settings.device)
    sides = {side: ("-m", "benchmarks.mnist_sides", side, *args) for side in _SIDES}
    stopping_rule = settings.stopping_rule
    # GPU time is scarce, and a process on a GPU takes seconds to start.
    rounds = ROUNDS_PER_PROCESS if settings.device == "cpu" else stopping_rule.max_rounds
    seconds = run_sides_interleaved(
        sides, folder=folder, stopping_rule=stopping_rule, seed=settings.seed, rounds_per_process=rounds
    )
    ours, tutorial, ceiling = seconds.values()
    budgets = {"cpu": _ON_CPU, "cuda": _ON_CUDA}
    times, ratio = ratio_row(
        f"epoch of {images.name}, {NUM_SAMPLES:,}, batch size {batch_size}: the tutorial's loop / ours",
        ours=ours,
        other=tutorial,
        budget=budgets.get(settings.device, {}).get(batch_size),
        inverse=True,
    )
    shares = Row(
        f"share of the best matrix product's rate, batch size {batch_size}: ours / tutorial's",
        f"{ratio_of(ceiling, ours).value:.2%}",
        f"{ratio_of(ceiling, tutorial).value:.2%}",
        str(ratio),
        str(ratio.rounds),
    )
    return times, shares


if __name__ == "__main__":
    run_benchmark("tutorial_epoch", measure, summary=__doc__, stopping_rule=_STOPPING_RULE, has_device=True)
