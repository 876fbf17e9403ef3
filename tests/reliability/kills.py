"""Kill a sweep again and again, repeat its command each time, and compare the end with an undisturbed sweep.

python tests/reliability/kills.py --kills 200 --write docs/reliability.md
python tests/reliability/kills.py --program loop --kills 100 --write docs/reliability.md
python tests/reliability/kills.py --program application --kills 60 --write docs/reliability.md
python tests/reliability/kills.py --program sweep-search --kills 60 --write docs/reliability.md
"""

import argparse
import contextlib
import csv
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
from commands import DEADLINE_SECONDS, POLL_SECONDS, killed_at_exit, wait_until
from foreign import Application, ApplicationSearch, Script, ScriptSearch, Steps, SweepSearch
from loops import Loop
from page import write_row
from programs import Process, Sweep

from runmanager.records.run.run_record import RunRecord

PROGRAMS: dict[str, type[Sweep]] = {
    "sweep": Sweep,
    "loop": Loop,
    "application": Application,
    "script": Script,
    "steps": Steps,
    "sweep-search": SweepSearch,
    "script-search": ScriptSearch,
    "application-search": ApplicationSearch,
}
_KILLED, _VANISHED = "killed (signal)", "crashed (vanished)"
_LATEST = 0.6  # latest time of a kill after the sweep runs, as a share of the time of an undisturbed sweep


def differences(one: Sweep, other: Sweep) -> list[str]:
    """Compare two sweeps: rows of epochs and results without times, the whole training state, and their own files."""
    found = []
    for file in ("epochs.csv", "results.csv"):
        if _rows(one, file) != _rows(other, file):
            found.append(f"{file} of {one.name} and {other.name}")
    for paths in one.run_paths():
        for file in ("checkpoint", "best"):
            first, second = getattr(paths, file), getattr(other.paths.run(paths.name), file)
            if first.exists() != second.exists():
                found.append(f"only one of {first} and {second} exists")
            elif first.exists() and not _same(_state(first), _state(second)):
                found.append(f"{first} and {second}")
        for name in one.own_files:
            own, others = paths.root / name, other.paths.run(paths.name).root / name
            if own.read_bytes() != others.read_bytes():
                found.append(f"{own} and {others}")
    return found


def _rows(sweep: Sweep, file: str) -> list[dict[str, str]]:
    with (sweep.paths.root / file).open(newline="") as lines:
        rows = [{key: row[key] for key in sweep.columns if key in row} for row in csv.DictReader(lines)]
    return sorted(rows, key=lambda row: (row["run"], int(row.get("epoch", 0))))


def _state(path: Path) -> dict[str, Any]:
    state = torch.load(path, weights_only=True)
    return {key: value for key, value in state.items() if key not in ("progress", "best")}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


@dataclass
class Tally:
    """Results of the kills."""

    kills: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    sweeps: int = 0
    lost: int = 0
    run_twice: int = 0
    untrue: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.run_twice or self.untrue or self.differing)


@dataclass(frozen=True)
class _Snapshot:
    """The finished work of a killed run by number, and how much work had begun in the sweep by then."""

    name: str
    finished: Mapping[int, object]
    num_begun: int


class Killer:
    """Kills sweeps of a program in `folder`; `seed` decides which process dies, and when."""

    def __init__(
        self, folder: Path, *, seed: int, program: type[Sweep] = Sweep, report: Callable[[str], None] = print
    ) -> None:
        self._folder = folder
        self._program = program
        self._random = random.Random(seed)
        self._report = report
        self._undisturbed: dict[str, tuple[Sweep, float]] = {}
        self._snapshots: list[_Snapshot] = []
        self._victims: dict[str, set[str]] = {}  # of the present command, with the states that they may have
        self.tally = Tally()

    def run(self, num_kills: int) -> Tally:
        """Kill `num_kills` times, and let the last sweep finish."""
        kinds = self._program.targets
        targets = [kinds[number % len(kinds)] for number in range(num_kills)]
        self._random.shuffle(targets)
        while targets:
            number = self.tally.sweeps
            variant = list(self._program.variants)[number % len(self._program.variants)]
            self._run_sweep(self._program(self._folder, variant, f"killed-{number}"), targets)
        return self.tally

    def _run_sweep(self, sweep: Sweep, targets: list[str]) -> None:
        """Repeat the command until it succeeds, killing meanwhile while there are targets; then compare."""
        self._snapshots = []
        reference, seconds = self.reference(sweep.variant)
        while True:
            self._victims = {}
            driver = sweep.start()
            self.tally.commands += 1
            with killed_at_exit(driver):
                while targets and self._kill_once(sweep, driver, targets[-1], within=_LATEST * seconds):
                    self.tally.kills[targets.pop()] += 1
                status = driver.wait(DEADLINE_SECONDS)
            if status >= 0:  # the driver has recorded each death
                self.tally.untrue += sweep.untrue_states({name: {_KILLED} for name in self._victims})
            if status == 0:
                break
            if status not in (1, -signal.SIGKILL):
                raise RuntimeError(f"the command ended with status {status}:\n{sweep.log()}")
        self._compare(sweep, reference)
        self.tally.sweeps += 1
        self._report(f"{sweep.name}: {sum(self.tally.kills.values())} kills, {self.tally.commands} commands so far")

    def _kill_once(self, sweep: Sweep, driver: Process, target: str, *, within: float) -> bool:
        """Kill at a random moment while runs are running; return False if the command ended before."""
        wait_until(lambda: driver.poll() is not None or sweep.running(), "a running run")
        at = time.monotonic() + self._random.uniform(0, within)
        while time.monotonic() < at and driver.poll() is None:
            time.sleep(POLL_SECONDS)
        victims = sweep.running()
        if driver.poll() is not None or not victims:
            return False
        if target in ("run", "program"):
            victims = [self._random.choice(victims)]
        families = _descendants(victims)
        if not self._kill(sweep, driver, target, victims[0]):
            return False
        wait_until(lambda: not any(record.name in _names(victims) for record in sweep.running()), "the end of the runs")
        wait_until(lambda: not any(map(_is_alive, families)), "the end of what the runs have started")
        state = {"run": {_KILLED, _VANISHED}, "program": {_KILLED}}.get(target, {_VANISHED})
        self._victims |= dict.fromkeys(_names(victims), state)
        self.tally.untrue += sweep.untrue_states(self._victims)
        self._take_snapshots(sweep, victims if target in ("run", "program") else sweep.records())
        return True

    def _kill(self, sweep: Sweep, driver: Process, target: str, victim: RunRecord) -> bool:
        """Kill the target; return False if it has just ended by itself."""
        if target == "driver":
            driver.kill()
        elif target == "group":
            os.killpg(driver.pid, signal.SIGKILL)
        try:
            if target == "run":
                if victim.owner is None or victim.owner.is_alive() is not True:
                    return False
                os.kill(victim.owner.pid, signal.SIGKILL)
            elif target == "program":
                if (program := sweep.program_of(victim)) is None:
                    return False
                program.kill()
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False
        if target in ("driver", "group"):
            driver.wait(DEADLINE_SECONDS)
        return True

    def _take_snapshots(self, sweep: Sweep, records: Sequence[RunRecord]) -> None:
        num_begun = len(sweep.begun())
        for record in records:
            self._snapshots.append(_Snapshot(record.name, sweep.finished_work(record), num_begun))

    def _compare(self, sweep: Sweep, reference: Sweep) -> None:
        begun = sweep.begun()
        now = {record.name: sweep.finished_work(record) for record in sweep.records()}
        lost, twice = set(), set()
        for snapshot in self._snapshots:
            name, finished = snapshot.name, snapshot.finished
            lost |= {(name, number) for number, work in finished.items() if now[name].get(number) != work}
            done = max(finished, default=0)
            twice |= {each for each in begun[snapshot.num_begun :] if each[0] == name and each[1] <= done}
        self.tally.lost += len(lost)
        self.tally.run_twice += len(twice)
        self.tally.differing += differences(sweep, reference)

    def reference(self, variant: str) -> tuple[Sweep, float]:
        """Return the undisturbed sweep of a variant, and how many seconds it took."""
        if variant not in self._undisturbed:
            sweep = self._program(self._folder, variant, f"undisturbed-{variant}")
            self._undisturbed[variant] = sweep, sweep.run()
        return self._undisturbed[variant]


def _names(records: Sequence[RunRecord]) -> set[str]:
    """Return the names of runs."""
    return {record.name for record in records}


def _descendants(records: Sequence[RunRecord]) -> list[psutil.Process]:
    found = []
    for record in records:
        with contextlib.suppress(psutil.NoSuchProcess):
            if record.owner is not None:
                found += psutil.Process(record.owner.pid).children(recursive=True)
    return found


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


_KINDS = {
    "sweep": "",
    "loop": "of custom loops ",
    "application": "of a Hydra application ",
    "script": "of a script ",
    "steps": "of a script with a loop by steps ",
    "sweep-search": "of a search over the built-in job ",
    "script-search": "of a search over a script ",
    "application-search": "of a search over a Hydra application ",
}
ROWS = {program: rf"\d+ SIGKILLs {kind or '(?!of )'}(?!with )" for program, kind in _KINDS.items()}
"""Beginnings of the rows in docs/reliability.md, by program."""


def row(tally: Tally, *, seed: int, program: str = "sweep") -> str:
    """Return the row of docs/reliability.md."""
    kills, killed = tally.kills.total(), PROGRAMS[program]
    states = f", {len(tally.untrue)} untrue states" if issubclass(killed, Application) else ""
    outcome = (
        f"{tally.lost} finished {killed.unit} lost, {tally.run_twice} run twice{states}, "
        f"{len(tally.differing)} differences"
    )
    option = "" if program == "sweep" else f"--program {program} "
    command = f"`python tests/reliability/kills.py {option}--kills {kills} --seed {seed}`"
    where = f"{tally.sweeps} {'runs' if program == 'loop' else 'sweeps'}"
    what = f"{kills} SIGKILLs {_KINDS[program]}in {where}"
    return f"| {what}, {tally.commands} commands | {outcome} | {command} |"


def main() -> int:
    """Run the command line; return 1 if anything was lost, run twice or changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--program", choices=PROGRAMS, default="sweep")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="page whose row is replaced by the result")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = Killer(Path(folder), seed=options.seed, program=PROGRAMS[options.program]).run(options.kills)
    line = row(tally, seed=options.seed, program=options.program)
    print(line)
    for difference in tally.differing:
        print(f"differs: {difference}")
    for state in tally.untrue:
        print(f"untrue: {state}")
    if options.write is not None:
        write_row(options.write, ROWS[options.program], line)
    return 0 if tally.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
