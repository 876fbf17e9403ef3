"""Time of a whole run of two epochs: the tutorial with its run manager and ours, including everything written.

Ours also reads the data, evaluates on the validation set, writes checkpoints, and writes the sweep's tables and report.
Both log images, graph, and histograms of all weights and gradients.
"""

import tempfile
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule
from benchmarks.mnist_files import find_or_generate
from benchmarks.mnist_sides import NUM_EPOCHS_PER_RUN, NUM_SAMPLES
from benchmarks.rows import Budget, Row, ratio_row
from benchmarks.side_processes import run_sides_interleaved

__all__ = ["measure"]

_BATCH_SIZE = 20_000
_BUDGET = Budget(6, is_minimum=True)
_SIDES = ("our-run", "tutorial-run")
_STOPPING_RULE = StoppingRule(min_rounds=6, max_rounds=9, max_seconds=150, half_width=0.05)


def measure(settings: Settings) -> list[Row]:
    """Return one row."""
    with tempfile.TemporaryDirectory() as name:
        images = find_or_generate(Path(name))
        args = ("--data", str(images.root), "--batch-size", str(_BATCH_SIZE), "--device", settings.device)
        sides = {side: ("-m", "benchmarks.mnist_sides", side, *args) for side in _SIDES}
        seconds = run_sides_interleaved(
            sides, folder=Path(name), stopping_rule=settings.stopping_rule, seed=settings.seed
        )
    ours, tutorial = seconds.values()
    what = f"whole run of {NUM_EPOCHS_PER_RUN} epochs of {images.name}, {NUM_SAMPLES:,}, batch size {_BATCH_SIZE}"
    row, _ = ratio_row(
        f"{what}: the tutorial's with its run manager / ours", ours=ours, other=tutorial, budget=_BUDGET, inverse=True
    )
    return [row]


if __name__ == "__main__":
    run_benchmark("tutorial_run", measure, summary=__doc__, stopping_rule=_STOPPING_RULE, has_device=True)
