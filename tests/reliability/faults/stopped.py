"""Processes that stand still for a while (SIGSTOP): a run, its driver, the driver's process group."""

import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from commands import DEADLINE_SECONDS, killed_at_exit, wait_until

from faults.small import NUM_EPOCHS, SmallSweep, untrue_states
from faults.trial import Tally, discard, finish, new_folder, run_well, stored_epochs
from runmanager.records.run.status import Status

__all__ = ["TARGETS", "stop"]

TARGETS = ("run", "driver", "group", "family")
_PACE = {"PACE": "0.15"}
_STOPPED_SECONDS = (0.5, 4.0)


def stop(folder: Path, tries: int, seed: int, *, target: str) -> Tally:
    """Stop the target at a random moment, start a second driver meanwhile, let the target continue; all must succeed.

    `family` is the driver with all that it has started.
    """
    tally, chance = Tally(), random.Random(seed)
    reference = SmallSweep(new_folder(folder, "whole"), "two", "undisturbed")
    run_well(reference)
    sweep = replace(SmallSweep(new_folder(folder, "tried"), "two", "stopped"), variables=_PACE)
    for number in range(tries):
        _try(tally, sweep, reference, chance, target, what=f"try {number}")
        discard(sweep)
    return tally


def _try(
    tally: Tally, sweep: SmallSweep, reference: SmallSweep, chance: random.Random, target: str, *, what: str
) -> None:
    first = sweep.start()
    with killed_at_exit(first):
        wait_until(lambda: first.poll() is not None or sweep.running(), "a running run")
        time.sleep(chance.uniform(0, 0.15 * NUM_EPOCHS))
        victims = _victims(sweep, first, target)
        running = [record.name for record in sweep.running()]
        if not victims:  # it had ended
            return
        try:
            for each in victims:
                with suppress(psutil.NoSuchProcess):
                    each.suspend()
            second = sweep.start()
            with killed_at_exit(second):
                until = time.monotonic() + chance.uniform(*_STOPPED_SECONDS)
                wait_until(lambda: time.monotonic() > until or second.poll() is not None, "the end of the stop")
                now = {record.name: record for record in sweep.records()}
                for name in running:
                    if now[name].status not in (Status.RUNNING, Status.FINISHED) or now[name].attempt != 1:
                        tally.untrue.append(f"{what}: {name} reads {now[name].status}, attempt {now[name].attempt}")
                _continue(victims)
                statuses = [each.wait(DEADLINE_SECONDS) for each in (first, second)]
        finally:
            _continue(victims)
    tally.tried += 1
    if statuses != [0, 0]:
        tally.untold.append(f"{what}: statuses {statuses}: {sweep.log()[-400:]}")
    else:
        tally.told["it goes on as `running`; another driver leaves it alone"] += 1
    tally.untrue += [f"{what}: {line}" for line in untrue_states(sweep, status=0)]
    if twice := [record.name for record in sweep.records() if record.attempt != 1]:
        tally.untrue.append(f"{what}: run twice: {twice}")
    finish(tally, sweep, reference, stored_epochs(sweep), what=what)


def _continue(victims: Sequence[psutil.Process]) -> None:
    for each in victims:
        with suppress(psutil.NoSuchProcess):
            each.resume()


def _victims(sweep: SmallSweep, driver: Any, target: str) -> list[psutil.Process]:
    found: Callable[[], list[psutil.Process]] = {
        "run": lambda: [psutil.Process(each.owner.pid) for each in sweep.running()[:1] if each.owner],
        "driver": lambda: [psutil.Process(driver.pid)],
        "group": lambda: [each for each in psutil.process_iter() if _group(each.pid) == driver.pid],
        "family": lambda: [psutil.Process(driver.pid), *psutil.Process(driver.pid).children(recursive=True)],
    }[target]
    with suppress(psutil.NoSuchProcess):
        return found()
    return []


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1
