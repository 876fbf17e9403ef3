"""Time and memory of the table of many stored runs, in process and as a command, and the time of --help.

The same runs with logged metrics are compared with those without.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_interleaved
from benchmarks.processes import RUNMANAGER, CompletedCommand, run_python
from benchmarks.rows import Budget, Row, format_megabytes, format_seconds, measurement_row, ratio_row
from benchmarks.stored_sweep import write_stored_sweep
from runmanager.records.files.paths import SweepPaths

__all__ = ["measure"]

_NUM_RUNS = 10_000
_NUM_EPOCHS = 10
_NUM_METRICS = 20
_LOGGED = Budget(1.5)  # times the same without logged metrics
_STOPPING_RULE = StoppingRule(min_rounds=7, max_rounds=15, max_seconds=60)
# Prints the seconds of the table, without the imports.
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
    """Return the rows of the table, with and without cache, of its memory, and of the help of both commands."""
    peaks: dict[str, list[float]] = {"uncached": [], "cached": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write = partial(write_stored_sweep, num_runs=_NUM_RUNS, num_epochs=_NUM_EPOCHS)
        sweep, logging = write(folder / "sweep"), write(folder / "logging", num_metrics=_NUM_METRICS)

        def command(which: str) -> float:
            done = _cli(folder, "table", str(sweep.root))
            peaks[which].append(done.peak_bytes)
            return done.seconds

        contenders: dict[str, Callable[[], float]] = {
            "in process": lambda: _cached(sweep, lambda: _in_process(folder, sweep)),
            "in process, uncached": lambda: _uncached(sweep, lambda: _in_process(folder, sweep)),
            "logged": lambda: _cached(logging, lambda: _in_process(folder, logging)),
            "logged, uncached": lambda: _uncached(logging, lambda: _in_process(folder, logging)),
            "command": lambda: _cached(sweep, partial(command, "cached")),
            "command, uncached": lambda: _uncached(sweep, partial(command, "uncached")),
            "help": lambda: _cli(folder, "table", "--help").seconds,
            "application's help": lambda: run_python("-m", "runmanager", "--help", folder=folder).seconds,
        }
        seconds = run_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed)
    first, in_process, as_command, memory = (
        Budget(0.8, format=format_seconds),
        Budget(0.5, format=format_seconds),
        Budget(1.5, format=format_seconds),
        Budget(300e6, format=format_megabytes),
    )
    return [
        measurement_row("cached, in process", seconds["in process"], budget=in_process),
        measurement_row("without cache, in process", seconds["in process, uncached"], budget=first),
        *(_logged_row(each, seconds) for each in ("", ", uncached")),
        measurement_row("cached, as a command", seconds["command"], budget=as_command),
        measurement_row("without cache, as a command", seconds["command, uncached"]),
        measurement_row("cached, peak memory of the command", peaks["cached"][1:], budget=memory),
        measurement_row("without cache, peak memory of the command", peaks["uncached"][1:], budget=memory),
        measurement_row("`runmanager table --help`", seconds["help"], budget=Budget(0.5, format=format_seconds)),
        measurement_row(
            "`python -m runmanager --help`", seconds["application's help"], budget=Budget(1.0, format=format_seconds)
        ),
    ]


def _logged_row(kind: str, seconds: Mapping[str, Sequence[float]]) -> Row:
    """Return the row of runs with logged metrics against those without."""
    what = f"{_NUM_METRICS} logged metrics a run{kind or ', cached'} / none"
    ours, other = seconds[f"logged{kind}"], seconds[f"in process{kind}"]
    return ratio_row(what, ours=ours, other=other, budget=_LOGGED)[0]


def _in_process(folder: Path, sweep: SweepPaths) -> float:
    seconds, num_rows = run_python("-c", _IN_PROCESS, str(sweep.root), folder=folder).output.split()
    assert int(num_rows) == _NUM_RUNS
    return float(seconds)


def _uncached(sweep: SweepPaths, work: Callable[[], float]) -> float:
    """Call `work` without a cache and restore the cache afterwards."""
    backup = sweep.root / "backup"
    if sweep.summaries.exists():
        sweep.summaries.rename(backup)
    try:
        return work()
    finally:
        sweep.summaries.unlink(missing_ok=True)
        if backup.exists():
            backup.rename(sweep.summaries)


def _cached(sweep: SweepPaths, work: Callable[[], float]) -> float:
    """Call `work` with a cache, after writing one if needed."""
    if not sweep.summaries.exists():
        work()
    return work()


def _cli(folder: Path, *args: str) -> CompletedCommand:
    return run_python(*RUNMANAGER, *args, folder=folder)


if __name__ == "__main__":
    run_benchmark("table", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
