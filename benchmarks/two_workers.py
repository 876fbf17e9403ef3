"""Time of two concurrent training runs on two cores against one after the other.

These are real runs of this application on the CPU. With one worker a run has two threads; with two, each run has one.
The time spans from the start of the first run to the end of the last, according to their records.
"""

import datetime
import shutil
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_interleaved
from benchmarks.processes import run_python
from benchmarks.rows import Budget, Row, ratio_row
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_sweep

__all__ = ["measure"]

_TRAINING = ("dataset=fake", "dataset.size=10000", "dataset.in_shape=[1,28,28]", "batch_size=1000", "epochs=3")
_BUDGET = Budget(1.15)
_STOPPING_RULE = StoppingRule(min_rounds=6, max_rounds=12, max_seconds=60, half_width=0.05)


def measure(settings: Settings) -> list[Row]:
    """Return one row."""
    with tempfile.TemporaryDirectory() as folder:
        contenders = {f"{workers}": partial(_span_seconds, Path(folder), workers) for workers in (1, 2)}
        seconds = run_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed)
    row, _ = ratio_row(
        "Two CPU runs on two cores: concurrent / one after the other",
        ours=seconds["2"],
        other=seconds["1"],
        budget=_BUDGET,
    )
    return [row]


def _span_seconds(folder: Path, workers: int) -> float:
    """Return the seconds from the first start to the last end. Raises `RuntimeError` if a run fails."""
    cwd = Path(tempfile.mkdtemp(dir=folder))
    args = (*_TRAINING, "-m", "seed=1,2", "device=cpu", "name=two", f"hydra.launcher.workers={workers}", "--quiet")
    done = run_python("-m", "runmanager", *args, folder=cwd)
    records = [run.record for run in read_sweep(SweepPaths(cwd / "outputs" / "two")).runs]
    if [record.status for record in records] != [Status.FINISHED] * 2:
        raise RuntimeError(f"Both runs must finish, but did not:\n{done.output}")
    begin = min(_time(record.started_at) for record in records)
    end = max(_time(record.ended_at) for record in records)
    shutil.rmtree(cwd)
    return (end - begin).total_seconds()


def _time(text: str | None) -> datetime.datetime:
    assert text is not None  # they have finished
    return datetime.datetime.fromisoformat(text)


if __name__ == "__main__":
    run_benchmark("two_workers", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
