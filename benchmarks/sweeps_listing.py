"""Time of the list of many stored sweeps and of their runs in one table, as commands, and its growth in CPU seconds.

The first reading of each is timed too: it reads every file and writes the caches.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.growth import growth_row
from benchmarks.interleaving import StoppingRule, run_interleaved, timed
from benchmarks.processes import RUNMANAGER, run_python
from benchmarks.rows import Budget, Row, format_seconds, measurement_row
from benchmarks.stored_sweep import write_stored_sweep
from runmanager.records.files.paths import SweepPaths
from runmanager.results.load.several_sweeps import read_sweeps
from runmanager.results.tables.shown_rows import cross_sweep_rows
from runmanager.results.tables.sweep_listing import list_sweeps, listing

__all__ = ["measure"]

_NUM_SWEEPS = 200
_NUM_RUNS = 50  # of each sweep
_NUM_EPOCHS = 10
_SIZES = (2, 20, 200)
_STOPPING_RULE = StoppingRule(min_rounds=5, max_rounds=9, max_seconds=60)


def measure(settings: Settings) -> list[Row]:
    """Return the rows of `ls` and of the table of all sweeps, after a first reading and without caches, and growth."""
    what = f"{_NUM_SWEEPS * _NUM_RUNS:,} stored runs in {_NUM_SWEEPS:,} sweeps"
    with tempfile.TemporaryDirectory() as name:
        sweeps = _write_sweeps(Path(name))
        commands = {
            "ls": partial(_command, Path(name), "ls", "outputs", "--format", "csv"),
            "table": partial(_command, Path(name), "table", *(f"outputs/{each.name}" for each in sweeps)),
        }
        contenders: dict[str, Callable[[], float]] = {**commands}
        for which, command in commands.items():
            contenders[f"{which}, first"] = partial(_without_caches, sweeps, command)
        commands["ls"]()  # writes the caches
        seconds = run_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed)
        growth = _growth(sweeps, settings)
    return [
        measurement_row(f"`ls` of {what}", seconds["ls"], budget=Budget(1.0, format=format_seconds)),
        measurement_row(f"`table` of {what}", seconds["table"], budget=Budget(1.5, format=format_seconds)),
        measurement_row(f"`ls` of {what}, first reading", seconds["ls, first"]),
        measurement_row(f"`table` of {what}, first reading", seconds["table, first"]),
        *(growth_row(f"{each} of sweeps of {_NUM_RUNS} runs", costs, of="sweeps") for each, costs in growth.items()),
    ]


def _write_sweeps(folder: Path) -> list[SweepPaths]:
    """Write the sweeps below `outputs/`; every other one has settings of its own."""
    rates = ((0.1, 0.03, 0.01), (0.02, 0.002))
    return [
        write_stored_sweep(
            folder / "outputs" / f"sweep-{number:03}",
            num_runs=_NUM_RUNS,
            num_epochs=_NUM_EPOCHS,
            seed=number,
            lr=rates[number % 2],
        )
        for number in range(_NUM_SWEEPS)
    ]


def _command(folder: Path, *words: str) -> float:
    return run_python(*RUNMANAGER, *words, folder=folder).seconds


def _without_caches(sweeps: Sequence[SweepPaths], command: Callable[[], float]) -> float:
    """Call `command` without caches, which `ls` writes again afterwards for the other commands."""
    for each in sweeps:
        each.summaries.unlink(missing_ok=True)
        each.sizes.unlink(missing_ok=True)
    seconds = command()
    list_sweeps(sweeps[0].root.parent, [], now_ns=time.time_ns())
    return seconds


def _growth(sweeps: Sequence[SweepPaths], settings: Settings) -> Mapping[str, Mapping[int, Sequence[float]]]:
    """The CPU seconds of both tables by number of sweeps, from the caches."""
    roots = {number: _linked(sweeps[:number]) for number in _SIZES}
    works = {
        "ls": lambda number: listing(list_sweeps(roots[number], [], now_ns=time.time_ns())),
        "table": lambda number: cross_sweep_rows(read_sweeps(sweeps[:number])),
    }
    contenders = {
        f"{what}, {number}": timed(partial(work, number), clock=time.process_time)
        for what, work in works.items()
        for number in _SIZES
    }
    seconds = run_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed)
    return {what: {number: seconds[f"{what}, {number}"] for number in _SIZES} for what in works}


def _linked(sweeps: Sequence[SweepPaths]) -> Path:
    """Return a folder with copies by hard links of these sweeps, as `ls` takes a folder."""
    root = sweeps[0].root.parents[1] / f"first-{len(sweeps)}"
    for each in sweeps:
        for path in each.root.rglob("*"):
            target = root / each.root.name / path.relative_to(each.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file() and path not in (each.summaries, each.sizes):
                target.hardlink_to(path)
    return root


if __name__ == "__main__":
    run_benchmark("sweeps_listing", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
