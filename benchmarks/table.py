"""The table of many stored runs, in a process and as a command: its time and its memory; and how soon help is there."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_interleaved
from benchmarks.processes import RUNMANAGER, CompletedCommand, run_python
from benchmarks.rows import Budget, Row, format_megabytes, format_seconds, measurement_row
from benchmarks.stored_sweep import write_stored_sweep
from runmanager.records.files.paths import SweepPaths

__all__ = ["measure"]

_NUM_RUNS = 10_000
_NUM_EPOCHS = 10
_STOPPING_RULE = StoppingRule(min_rounds=7, max_rounds=15, max_seconds=60)
# Prints the seconds that the table took, without the imports.
_IN_PROCESS = """
import sys, time
from pathlib import Path
from runmanager.records.files.paths import SweepPaths
from runmanager.results.load.loader import read_summary
from runmanager.results.tables.results_table import result_rows
begin = time.perf_counter()
rows = result_rows(*read_summary(SweepPaths(Path(sys.argv[1])))).rows
print(time.perf_counter() - begin, len(rows))
"""


def measure(settings: Settings) -> list[Row]:
    """The rows of the table, read for the first time and again; of its memory; and of the two helps."""
    what = f"table of {_NUM_RUNS:,} stored runs of {_NUM_EPOCHS} epochs"
    again, first = f"{what}, made before", f"{what}, for the first time"
    peaks: dict[str, list[float]] = {"first": [], "again": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sweep = write_stored_sweep(folder / "sweep", num_runs=_NUM_RUNS, num_epochs=_NUM_EPOCHS)

        def command(which: str) -> float:
            done = _cli(folder, "table", str(sweep.root))
            peaks[which].append(done.peak_bytes)
            return done.seconds

        contenders: dict[str, Callable[[], float]] = {
            "in process": lambda: _cached(sweep, lambda: _in_process(folder, sweep)),
            "in process, first": lambda: _uncached(sweep, lambda: _in_process(folder, sweep)),
            "command": lambda: _cached(sweep, partial(command, "again")),
            "command, first": lambda: _uncached(sweep, partial(command, "first")),
            "help": lambda: _cli(folder, "table", "--help").seconds,
            "application's help": lambda: run_python("-m", "runmanager", "--help", folder=folder).seconds,
        }
        seconds = run_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed)
    in_process, as_command, memory = (
        Budget(0.5, format=format_seconds),
        Budget(1.5, format=format_seconds),
        Budget(300e6, format=format_megabytes),
    )
    return [
        measurement_row(f"{again}, in the process", seconds["in process"], budget=in_process),
        measurement_row(f"{first}, in the process", seconds["in process, first"]),
        measurement_row(f"{again}, as a command", seconds["command"], budget=as_command),
        measurement_row(f"{first}, as a command", seconds["command, first"]),
        measurement_row(f"{again}, peak memory of the command", peaks["again"][1:], budget=memory),
        measurement_row(f"{first}, peak memory of the command", peaks["first"][1:], budget=memory),
        measurement_row("`runmanager table --help`", seconds["help"], budget=Budget(0.5, format=format_seconds)),
        measurement_row(
            "`python -m runmanager --help`", seconds["application's help"], budget=Budget(1.0, format=format_seconds)
        ),
    ]


def _in_process(folder: Path, sweep: SweepPaths) -> float:
    seconds, num_rows = run_python("-c", _IN_PROCESS, str(sweep.root), folder=folder).output.split()
    assert int(num_rows) == _NUM_RUNS
    return float(seconds)


def _uncached(sweep: SweepPaths, work: Callable[[], float]) -> float:
    """`work` as it is where nobody has made the table before; what it keeps is put where it was."""
    aside = sweep.root / "aside"
    if sweep.summaries.exists():
        sweep.summaries.rename(aside)
    try:
        return work()
    finally:
        sweep.summaries.unlink(missing_ok=True)
        if aside.exists():
            aside.rename(sweep.summaries)


def _cached(sweep: SweepPaths, work: Callable[[], float]) -> float:
    """`work` where the table has been made before."""
    if not sweep.summaries.exists():
        work()
    return work()


def _cli(folder: Path, *args: str) -> CompletedCommand:
    return run_python(*RUNMANAGER, *args, folder=folder)


if __name__ == "__main__":
    run_benchmark("table", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
