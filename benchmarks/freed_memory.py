"""What it gains to keep the memory that steps free: epochs on the CPU with the C library's defaults, and with it kept.

Each epoch is the second one of a new process: with the defaults, where its memory came to lie decides what is handed
back to the kernel, so processes differ.
"""

import tempfile
from functools import partial
from pathlib import Path

from benchmarks import tracker_sides
from benchmarks.command import Settings, carry_out
from benchmarks.interleaving import Patience, in_turns
from benchmarks.rows import Row, compared, measured
from benchmarks.sides import Side
from benchmarks.trackers import UNTRACKED

__all__ = ["measure"]

_WORDS = ("-m", "benchmarks.tracker_sides", "epochs", UNTRACKED)
_WHAT = f"epoch of the CNN, {tracker_sides.NUM_STEPS} steps, batch size {tracker_sides.BATCH_SIZE}"
_PATIENCE = Patience(min_rounds=7, max_rounds=7)


def measure(settings: Settings) -> list[Row]:
    """How much longer it takes by default, and how far processes lie apart then and with the memory kept."""
    with tempfile.TemporaryDirectory() as folder:
        second_epoch = partial(_second_epoch, folder=Path(folder))
        contenders = {
            "kept": partial(second_epoch, *_WORDS),
            "default": partial(second_epoch, *_WORDS, "--default-memory"),
        }
        seconds = in_turns(contenders, patience=settings.patience, seed=settings.seed, warm_up_rounds=0)
    ratio, _ = compared(
        f"{_WHAT}: C library's defaults / freed memory kept",
        ours=seconds["kept"],
        other=seconds["default"],
        inverse=True,
    )
    return [
        ratio,
        measured(f"{_WHAT}, freed memory kept", seconds["kept"]),
        measured(f"{_WHAT}, C library's defaults", seconds["default"]),
    ]


def _second_epoch(*words: str, folder: Path) -> float:
    parts = range(tracker_sides.PARTS["epochs"])
    with Side(*words, folder=folder) as side:
        return [sum(side() for _ in parts) for _ in range(2)][1]


if __name__ == "__main__":
    carry_out("freed_memory", measure, summary=__doc__, patience=_PATIENCE)
