"""The most memory that a sweep's driver has, by the number of cells; its runs have processes of their own."""

import tempfile
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule
from benchmarks.page import RELIABILITY, write_row
from benchmarks.processes import run_python
from benchmarks.rows import Budget, Row, format_megabytes

__all__ = ["measure"]

_NUM_CELLS = (10, 100, 1000)
_FLAT = Budget(1.25)
_MARK = "The driver of a sweep"


def measure(settings: Settings) -> list[Row]:
    """One row: the largest grid's driver beside the smallest one's. Once is enough: memory does not drift."""
    with tempfile.TemporaryDirectory() as folder:
        peaks = {number: _peak_bytes(Path(folder), number) for number in _NUM_CELLS}
    least, most = peaks[_NUM_CELLS[0]], peaks[_NUM_CELLS[-1]]
    ratio = most / least
    row = Row(
        f"peak memory of a sweep's driver: {_NUM_CELLS[-1]:,} cells / {_NUM_CELLS[0]} cells",
        format_megabytes(most),
        format_megabytes(least),
        f"{ratio:.3g}",
        budget=str(_FLAT),
        met=_FLAT.verdict(ratio, ratio, ratio),
    )
    if settings.writes:
        said = ", ".join(f"{format_megabytes(peak)} with {number:,} cells" for number, peak in peaks.items())
        write_row(RELIABILITY, _MARK, (_MARK, f"has {said} at most", f"`{settings.command}`"))
    return [row]


def _peak_bytes(folder: Path, num_cells: int) -> int:
    args = ("-m", f"seed=range(0,{num_cells})", f"name=cells-{num_cells}", "hydra.launcher.workers=2", "--yes")
    return run_python("-m", "benchmarks.instant_application", *args, folder=folder).peak_bytes


if __name__ == "__main__":
    run_benchmark("driver_memory", measure, summary=__doc__, stopping_rule=StoppingRule(max_rounds=1))
