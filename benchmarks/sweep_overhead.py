"""Overhead of a sweep: cells whose task returns immediately, under our launcher and Hydra's basic launcher.

Hydra's basic launcher runs all cells in one process; ours runs each cell in a separate process. Whole commands are
timed, from the start of Python to its end, with the same application and task on both sides.
"""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_interleaved
from benchmarks.processes import run_python
from benchmarks.rows import Budget, Row, ratio_row
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_sweep

__all__ = ["NUM_CELLS", "measure"]

NUM_CELLS = 200
_NUM_SMALL_APPLICATION_CELLS = 30
_WARM_UP_CELLS = 4
_FEW_ROUNDS = 6
_BASIC = "basic"
_SWEEP = "hydra.sweep.dir=outputs/sweep"  # our sweeper also writes to outputs/
_OURS = {
    _BASIC: ("hydra/sweeper=basic", "hydra/launcher=basic", _SWEEP),
    "two workers": ("hydra.launcher.workers=2",),
    "one worker": ("hydra.launcher.workers=1",),
}
_SMALL_APPLICATION = {
    _BASIC: ("hydra/launcher=basic", _SWEEP),
    "two workers": ("hydra/sweeper=runmanager", "hydra.launcher.workers=2"),
    "one worker": ("hydra/sweeper=runmanager", "hydra.launcher.workers=1"),
}
_SMALL_BUDGETS = {"two workers": Budget(1.8, is_minimum=True), "one worker": Budget(1, is_minimum=True)}
_BUDGETS = {"two workers": Budget(4, is_minimum=True), "one worker": Budget(2.5, is_minimum=True)}
_STOPPING_RULE = StoppingRule(min_rounds=5, max_rounds=8, max_seconds=240, half_width=0.05)


def measure(settings: Settings) -> list[Row]:
    """Return the rows of our application and those of a plain Hydra application."""
    few = replace(
        settings, stopping_rule=replace(settings.stopping_rule, min_rounds=_FEW_ROUNDS, max_rounds=_FEW_ROUNDS)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = _measured(settings, folder, "instant_application", _OURS, num_cells=NUM_CELLS)
        small = _measured(few, folder, "small_application", _SMALL_APPLICATION, num_cells=_NUM_SMALL_APPLICATION_CELLS)
    rows = _rows(f"{NUM_CELLS} cells, our application", ours, _BUDGETS)
    small_mark = f"{_NUM_SMALL_APPLICATION_CELLS} cells, a plain Hydra application"
    return [*rows, *_rows(small_mark, small, _SMALL_BUDGETS)]


def _measured(
    settings: Settings, folder: Path, application: str, variants: Mapping[str, tuple[str, ...]], *, num_cells: int
) -> dict[str, list[float]]:
    for args in variants.values():  # warm-up: brings files and modules into the page cache
        _seconds(folder, application, args, num_cells=_WARM_UP_CELLS)
    timed = partial(_seconds, folder, application, num_cells=num_cells)
    contenders = {name: partial(timed, args) for name, args in variants.items()}
    return run_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed, warm_up_rounds=0)


def _seconds(folder: Path, application: str, args: tuple[str, ...], *, num_cells: int) -> float:
    """Time one command in an empty folder. Raises `RuntimeError` if a cell does not finish."""
    cwd = Path(tempfile.mkdtemp(dir=folder))
    done = run_python("-m", f"benchmarks.{application}", "-m", f"seed=range(0,{num_cells})", *args, folder=cwd)
    if _SWEEP not in args or application == "instant_application":
        _check(cwd, num_cells)
    shutil.rmtree(cwd)
    return done.seconds


def _check(cwd: Path, num_cells: int) -> None:
    (sweep,) = (cwd / "outputs").iterdir()
    finished = sum(run.record.status is Status.FINISHED for run in read_sweep(SweepPaths(sweep)).runs)
    if finished != num_cells:
        raise RuntimeError(f"All {num_cells} cells must finish, got {finished}.")


def _rows(what: str, seconds: Mapping[str, list[float]], budgets: Mapping[str, Budget]) -> list[Row]:
    return [
        ratio_row(
            f"{what}: Hydra's basic launcher / ours with {name}",
            ours=seconds[name],
            other=seconds[_BASIC],
            budget=budgets.get(name),
            inverse=True,
        )[0]
        for name in seconds
        if name != _BASIC
    ]


if __name__ == "__main__":
    run_benchmark("sweep_overhead", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
