"""The table of many stored runs, in a process and as a command: its time and its memory; and how soon help is there."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.command import Settings, carry_out
from benchmarks.interleaving import Patience, in_turns
from benchmarks.processes import Finished, run_python
from benchmarks.rows import Budget, Row, as_seconds, measured
from benchmarks.stored_sweep import write_stored_sweep

__all__ = ["measure"]

_NUM_RUNS = 10_000
_NUM_EPOCHS = 10
_PATIENCE = Patience(min_rounds=7, max_rounds=15, max_seconds=60)
# Prints the seconds that the table took, without the imports.
_IN_PROCESS = """
import sys, time
from pathlib import Path
from runmanager.records.paths import SweepPaths
from runmanager.results.reading import read_results
from runmanager.results.table import result_rows
begin = time.perf_counter()
rows = result_rows(*read_results(SweepPaths(Path(sys.argv[1])))).rows
print(time.perf_counter() - begin, len(rows))
"""


def measure(settings: Settings) -> list[Row]:
    """The rows of the table, its memory, and `table --help`."""
    what = f"table of {_NUM_RUNS:,} stored runs of {_NUM_EPOCHS} epochs"
    peaks: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sweep = write_stored_sweep(folder / "sweep", num_runs=_NUM_RUNS, num_epochs=_NUM_EPOCHS)

        def in_process() -> float:
            seconds, num_rows = run_python("-c", _IN_PROCESS, str(sweep.root), folder=folder).output.split()
            assert int(num_rows) == _NUM_RUNS
            return float(seconds)

        def command() -> float:
            done = _cli(folder, "table", str(sweep.root))
            peaks.append(done.peak_bytes)
            return done.seconds

        contenders: dict[str, Callable[[], float]] = {
            "in process": in_process,
            "command": command,
            "help": lambda: _cli(folder, "table", "--help").seconds,
        }
        seconds = in_turns(contenders, patience=settings.patience, seed=settings.seed)
    return [
        measured(f"{what}, in the process", seconds["in process"], budget=Budget(0.5, words=as_seconds)),
        measured(f"{what}, as a command", seconds["command"], budget=Budget(1.5, words=as_seconds)),
        measured(f"{what}, peak memory of the command", peaks[1:], budget=Budget(300e6, words=_megabytes)),
        measured("`runmanager table --help`", seconds["help"], budget=Budget(0.5, words=as_seconds)),
    ]


def _cli(folder: Path, *words: str) -> Finished:
    return run_python("-c", "import sys; from runmanager.cli.main import main; sys.exit(main())", *words, folder=folder)


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.0f} MB"


if __name__ == "__main__":
    carry_out("table", measure, summary=__doc__, patience=_PATIENCE)
