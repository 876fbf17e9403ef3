"""Peak memory of a sweep's driver by the number of cells; the runs have separate processes."""

import tempfile
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule
from benchmarks.processes import run_python
from benchmarks.rows import Budget, Row, format_megabytes

__all__ = ["measure"]

_NUM_CELLS = (10, 100, 1000)
_BUDGET = Budget(1.25)


def measure(settings: Settings) -> list[Row]:
    """Return the row of the largest grid against the smallest. One round suffices, since memory does not drift."""
    with tempfile.TemporaryDirectory() as folder:
        peaks = {number: _peak_bytes(Path(folder), number) for number in _NUM_CELLS}
    smallest, largest = peaks[_NUM_CELLS[0]], peaks[_NUM_CELLS[-1]]
    ratio = largest / smallest
    row = Row(
        f"peak memory of a sweep's driver: {_NUM_CELLS[-1]:,} cells / {_NUM_CELLS[0]} cells",
        format_megabytes(largest),
        format_megabytes(smallest),
        f"{ratio:.3g}",
        budget=str(_BUDGET),
        met=_BUDGET.verdict(ratio, ratio, ratio),
    )
    return [row]


def _peak_bytes(folder: Path, num_cells: int) -> int:
    args = ("-m", f"seed=range(0,{num_cells})", f"name=cells-{num_cells}", "hydra.launcher.workers=2", "--yes")
    return run_python("-m", "benchmarks.instant_application", *args, folder=folder).peak_bytes


if __name__ == "__main__":
    run_benchmark("driver_memory", measure, summary=__doc__, stopping_rule=StoppingRule(max_rounds=1))
