"""Speed gained by keeping freed memory: CPU epochs with the C library's defaults and with freed memory kept.

Each epoch is the second one of a new process. With the defaults, the memory layout of a process decides what it returns
to the kernel, so processes differ.
"""

import tempfile
from functools import partial
from pathlib import Path

from benchmarks import tracker_sides
from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_interleaved
from benchmarks.rows import Row, ratio_row
from benchmarks.side_processes import Side
from benchmarks.trackers import UNTRACKED

__all__ = ["measure"]

_ARGS = ("-m", "benchmarks.tracker_sides", "epochs", UNTRACKED)
_WHAT = f"{tracker_sides.NUM_STEPS} steps, batch size {tracker_sides.BATCH_SIZE}"
_STOPPING_RULE = StoppingRule(min_rounds=7, max_rounds=7)


def measure(settings: Settings) -> list[Row]:
    """Return the ratio of the defaults to kept memory."""
    with tempfile.TemporaryDirectory() as folder:
        second_epoch = partial(_second_epoch, folder=Path(folder))
        contenders = {
            "kept": partial(second_epoch, *_ARGS),
            "default": partial(second_epoch, *_ARGS, "--default-memory"),
        }
        seconds = run_interleaved(
            contenders, stopping_rule=settings.stopping_rule, seed=settings.seed, warm_up_rounds=0
        )
    ratio, _ = ratio_row(
        f"{_WHAT}: C library's defaults / freed memory kept",
        ours=seconds["kept"],
        other=seconds["default"],
        inverse=True,
    )
    return [ratio]


def _second_epoch(*args: str, folder: Path) -> float:
    parts = range(tracker_sides.PARTS["epochs"])
    with Side(*args, folder=folder) as side:
        return [sum(side() for _ in parts) for _ in range(2)][1]


if __name__ == "__main__":
    run_benchmark("freed_memory", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
