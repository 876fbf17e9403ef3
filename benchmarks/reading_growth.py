"""Growth of the cost of reading 10 to 10,000 stored runs: the table, the plan of a resumed sweep, and `watch`.

Costs are CPU seconds of all processes: the files are in memory, and other load on the machine would hide the growth.
"""

import resource
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.growth import growth_row
from benchmarks.interleaving import StoppingRule, run_interleaved, timed
from benchmarks.rows import Row
from benchmarks.stored_sweep import write_stored_sweep
from runmanager.app.follow.sweep_state import SweepReader
from runmanager.launching.plan import Cell, PlanRules, needs_epochs, plan_runs
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import Environment
from runmanager.records.storage.reader import read_sweep
from runmanager.results.load.loader import read_summary
from runmanager.results.tables.results_table import result_rows

__all__ = ["measure"]

_SIZES = (10, 100, 1000, 10_000)
_NUM_EPOCHS = 10
_STOPPING_RULE = StoppingRule(min_rounds=5, max_rounds=9, max_seconds=60)


def measure(settings: Settings) -> list[Row]:
    """Return a row per operation: seconds by number of runs, and the exponent over the last decade."""
    with tempfile.TemporaryDirectory() as name:
        sweeps = {
            number: write_stored_sweep(Path(name, str(number)), num_runs=number, num_epochs=_NUM_EPOCHS)
            for number in _SIZES
        }
        contenders = {
            (what, number): timed(work, clock=_cpu_seconds)
            for number, sweep in sweeps.items()
            for what, work in _works(sweep).items()
        }
        named = {f"{what}, {number}": contender for (what, number), contender in contenders.items()}
        seconds = run_interleaved(named, stopping_rule=settings.stopping_rule, seed=settings.seed)
    found = dict(zip(contenders, seconds.values(), strict=True))
    return [
        growth_row(what, {number: found[what, number] for number in _SIZES}, of="runs")
        for what in dict.fromkeys(w for w, _ in contenders)
    ]


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended, finer than ticks of the clock."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _works(sweep: SweepPaths) -> Mapping[str, Callable[[], object]]:
    summary, _ = read_summary(sweep)
    cells = [Cell(run.signature, run.name, {}, ()) for run in summary.runs]
    reader = SweepReader(sweep)
    return {
        "table without cache": partial(_uncached_table, sweep),
        "table from cache": lambda: result_rows(*read_summary(sweep)),
        "plan of a resumed sweep": partial(_plan, cells, sweep),
        "watch, first read": lambda: SweepReader(sweep).read(),
        "watch, each later read": reader.read,
    }


def _uncached_table(sweep: SweepPaths) -> None:
    """Build the table without a cache; the cache that this writes serves the cached table."""
    sweep.summaries.unlink(missing_ok=True)
    result_rows(*read_summary(sweep))


def _plan(cells: Sequence[Cell], sweep: SweepPaths) -> None:
    stored = read_sweep(sweep, epochs_of=needs_epochs).runs
    plan_runs(cells, stored, sweep, PlanRules(Environment()))


if __name__ == "__main__":
    run_benchmark("reading_growth", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
