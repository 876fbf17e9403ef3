"""Disturbances of a running sweep: its folder moved or deleted, the server of its processes killed, others at work."""

import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from commands import DEADLINE_SECONDS, killed_at_exit, wait_until
from programs import Sweep

from faults.small import NUM_EPOCHS, SmallLoop, SmallSweep, untrue_states
from faults.trial import Tally, discard, finish, new_folder, note_telling, run_command, run_well, stored_epochs
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_sweep
from runmanager.results.load.loader import read_results
from runmanager.results.tables.results_table import result_rows

__all__ = ["DISTURBANCES", "disturb", "share"]

_PACE = {"PACE": "0.1"}
_GONE = "must stay in its place"


def _kill_server(sweep: Sweep, driver: Any) -> None:
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(driver.pid).children():
            if "forkserver" in " ".join(each.cmdline()):
                each.kill()


def _move(sweep: Sweep, driver: Any) -> None:
    sweep.paths.root.rename(_away(sweep))


def _away(sweep: Sweep) -> Path:
    return sweep.folder / "away"


def _delete(sweep: Sweep, driver: Any) -> None:
    wait_until(partial(_is_gone, sweep.paths.root), "the folder's end")


def _delete_run(sweep: Sweep, driver: Any) -> None:
    for record in sweep.running()[:1]:
        wait_until(partial(_is_gone, sweep.paths.run(record.name).root), "the folder's end")


def _is_gone(folder: Path) -> bool:
    """Remove a folder; false if a process has written into it meanwhile, so that a part of it is left."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


DISTURBANCES: Mapping[str, tuple[Callable[[Sweep, Any], None], str]] = {
    "server": (_kill_server, "the process that had started it was killed"),
    "moved": (_move, _GONE),
    "deleted": (_delete, _GONE),
    "run deleted": (_delete_run, "must exist while"),
    "loop moved": (_move, "must exist while"),
    "loop deleted": (_delete, "must exist while"),
}
"""What is done, and the words that tell it."""


def disturb(folder: Path, tries: int, seed: int, *, kind: str) -> Tally:
    """Disturb a sweep, or a loop, at a random moment while it runs; then give its command again."""
    act, said = DISTURBANCES[kind]
    tally, chance = Tally(), random.Random(seed)
    made, variant = (SmallLoop, "generator") if kind.startswith("loop") else (SmallSweep, "two")
    reference = made(new_folder(folder, "whole"), variant, "undisturbed")
    run_well(reference)
    sweep = replace(made(new_folder(folder, "tried"), variant, "disturbed"), variables=_PACE)
    for number in range(tries):
        _try(tally, sweep, reference, chance, act, said, what=f"{kind}, try {number}")
        discard(sweep)
        shutil.rmtree(_away(sweep), ignore_errors=True)
    return tally


def _try(
    tally: Tally,
    sweep: Any,
    reference: Sweep,
    chance: random.Random,
    act: Callable[[Sweep, Any], None],
    said: str,
    *,
    what: str,
) -> None:
    def meanwhile(driver: Any) -> None:
        wait_until(lambda: driver.poll() is not None or sweep.running(), "a running run")
        time.sleep(chance.uniform(0, 0.05 * sweep.num_epochs))
        if driver.poll() is None:
            act(sweep, driver)

    status = run_command(sweep, meanwhile)
    if _away(sweep).exists():
        if sweep.paths.root.exists():
            tally.untrue.append(f"{what}: written where the folder was: {list(sweep.paths.root.rglob('*'))}")
            shutil.rmtree(sweep.paths.root)
        _away(sweep).rename(sweep.paths.root)
    tally.tried += 1
    tally.untrue += [f"{what}: {line}" for line in untrue_states(sweep, status=status)]
    if status == 0:
        tally.told["nothing: it had ended"] += 1
    else:
        note_telling(tally, sweep, said, what=what)
    finish(tally, sweep, reference, stored_epochs(sweep), what=what)


def share(folder: Path, tries: int, seed: int) -> Tally:
    """Give a command to two drivers at almost the same time, while three readers read; every other time kill one."""
    tally, chance = Tally(), random.Random(seed)
    reference = SmallSweep(new_folder(folder, "whole"), "two", "undisturbed")
    run_well(reference)
    sweep = replace(SmallSweep(new_folder(folder, "tried"), "two", "shared"), variables=_PACE)
    context = multiprocessing.get_context("fork")
    for number in range(tries):
        what = f"try {number}"
        with ExitStack() as stack:
            found, over = context.Queue(), context.Event()
            readers = [context.Process(target=_read, args=(sweep.paths, over, found), daemon=True) for _ in range(3)]
            for each in readers:
                each.start()
                stack.callback(each.kill)
            drivers = []
            for _ in range(2):
                drivers.append(sweep.start())
                stack.enter_context(killed_at_exit(drivers[-1]))
                time.sleep(chance.uniform(0, 0.5))
            if number % 2:
                wait_until(partial(_is_busy_or_over, sweep, drivers), "a running run")
                time.sleep(chance.uniform(0, 0.1 * NUM_EPOCHS))
                os.killpg(drivers[number % 4 == 1].pid, signal.SIGKILL)
            kept = stored_epochs(sweep)
            statuses = sorted(each.wait(DEADLINE_SECONDS) for each in drivers)
            over.set()
            tally.untrue += [f"{what}: a reader saw {line}" for _ in readers for line in found.get(timeout=60)]
        tally.tried += 1
        if statuses[-1] != 0 or statuses[0] not in (0, -signal.SIGKILL):
            tally.untold.append(f"{what}: statuses {statuses}: {sweep.log()[-300:]}")
        else:
            tally.told["each shows complete tables"] += 1
        tally.untrue += [f"{what}: {line}" for line in untrue_states(sweep, status=0)]
        finish(tally, sweep, reference, kept, what=what)
        discard(sweep)
    return tally


def _is_busy_or_over(sweep: Sweep, drivers: Sequence[Any]) -> bool:
    return bool(sweep.running()) or all(each.poll() is not None for each in drivers)


def _read(paths: SweepPaths, over: Any, found: Any) -> None:
    """Read a sweep until it is over; put what was not true in the end: damage, and ends that were undone."""
    untrue: list[str] = []
    finished: set[str] = set()
    while not over.is_set():
        contents = read_sweep(paths)
        untrue += [each.message for each in contents.damaged]
        now = {run.name for run in contents.runs if run.record.status is Status.FINISHED}
        untrue += [f"{name} finished before, and now it has not" for name in finished - now]
        untrue += [
            f"{run.name} finished early"
            for run in contents.runs
            if run.name in now - finished and len(run.epochs) != NUM_EPOCHS
        ]
        finished = now
        if contents.runs:
            result_rows(*read_results(paths))
        time.sleep(0.02)
    found.put(untrue[:5])
