"""How the cost of looking at stored runs grows from 10 to 10,000: the table, the plan of a resumed sweep, a watcher.

Counted in seconds of CPU: the files are in memory, and what else the machine does would hide how a cost grows.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.command import Settings, carry_out
from benchmarks.growth import grown
from benchmarks.interleaving import Patience, in_turns, timed
from benchmarks.rows import Row
from benchmarks.stored_sweep import write_stored_sweep
from runmanager.app.follow.sweep_state import SweepReader
from runmanager.launching.plan import Cell, Resume, needs_epochs, plan_runs
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import Environment
from runmanager.records.storage.reader import read_sweep
from runmanager.results.load.loader import read_summary
from runmanager.results.tables.results_table import result_rows

__all__ = ["measure"]

_SIZES = (10, 100, 1000, 10_000)
_NUM_EPOCHS = 10
_PATIENCE = Patience(min_rounds=5, max_rounds=9, max_seconds=60)


def measure(settings: Settings) -> list[Row]:
    """A row for each way of looking: its seconds by the number of runs, and the exponent over the last decade."""
    with tempfile.TemporaryDirectory() as name:
        sweeps = {
            number: write_stored_sweep(Path(name, str(number)), num_runs=number, num_epochs=_NUM_EPOCHS)
            for number in _SIZES
        }
        looks = {
            (what, number): timed(work, clock=time.process_time)
            for number, sweep in sweeps.items()
            for what, work in _works(sweep).items()
        }
        names = {f"{what}, {number}": look for (what, number), look in looks.items()}
        seconds = in_turns(names, patience=settings.patience, seed=settings.seed)
    found = dict(zip(looks, seconds.values(), strict=True))
    return [
        grown(what, {number: found[what, number] for number in _SIZES}, of="runs")
        for what in dict.fromkeys(w for w, _ in looks)
    ]


def _works(sweep: SweepPaths) -> Mapping[str, Callable[[], object]]:
    summary, _ = read_summary(sweep)
    cells = [Cell(run.signature, run.name, {}, ()) for run in summary.runs]
    reader = SweepReader(sweep)
    return {
        "table, first reading": partial(_table_anew, sweep),
        "table": lambda: result_rows(*read_summary(sweep)),
        "plan of a resumed sweep": partial(_plan, cells, sweep),
        "watch, first look": lambda: SweepReader(sweep).read(),
        "watch, each look after": reader.read,
    }


def _table_anew(sweep: SweepPaths) -> None:
    """The table as it is made the first time; what it keeps serves the other one."""
    sweep.summaries.unlink(missing_ok=True)
    result_rows(*read_summary(sweep))


def _plan(cells: Sequence[Cell], sweep: SweepPaths) -> None:
    stored = read_sweep(sweep, epochs_of=needs_epochs).runs
    plan_runs(cells, stored, sweep, resume=Resume.AUTO, rerun_changed=False, now=Environment())


if __name__ == "__main__":
    carry_out("reading_growth", measure, summary=__doc__, patience=_PATIENCE)
