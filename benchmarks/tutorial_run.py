"""The tutorial's whole run of two epochs with its run manager, and ours, in turns: all that either writes included.

Ours also reads the data, evaluates on the validation set, keeps checkpoints, and writes the sweep's tables and report.
Both log images, graph, and histograms of all weights and gradients.
"""

import tempfile
from pathlib import Path

from benchmarks.command import Settings, carry_out
from benchmarks.interleaving import Patience
from benchmarks.mnist_files import find_or_generate
from benchmarks.mnist_sides import NUM_EPOCHS_A_RUN, NUM_SAMPLES
from benchmarks.rows import Budget, Row, compared
from benchmarks.sides import sides_in_turns

__all__ = ["measure"]

_BATCH_SIZE = 20_000
_BUDGET = Budget(6, is_least=True)
_SIDES = ("our-run", "tutorial-run")
_PATIENCE = Patience(min_rounds=6, max_rounds=9, max_seconds=150, half_width=0.05)


def measure(settings: Settings) -> list[Row]:
    """One row."""
    with tempfile.TemporaryDirectory() as name:
        images = find_or_generate(Path(name))
        words = ("--data", str(images.root), "--batch-size", str(_BATCH_SIZE), "--device", settings.device)
        sides = {side: ("-m", "benchmarks.mnist_sides", side, *words) for side in _SIDES}
        seconds = sides_in_turns(sides, folder=Path(name), patience=settings.patience, seed=settings.seed)
    ours, tutorial = seconds.values()
    what = f"whole run of {NUM_EPOCHS_A_RUN} epochs of {images.name}, {NUM_SAMPLES:,}, batch size {_BATCH_SIZE}"
    row, _ = compared(
        f"{what}: the tutorial's with its run manager / ours", ours=ours, other=tutorial, budget=_BUDGET, inverse=True
    )
    return [row]


if __name__ == "__main__":
    carry_out("tutorial_run", measure, summary=__doc__, patience=_PATIENCE, has_device=True)
