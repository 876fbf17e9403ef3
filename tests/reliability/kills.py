"""Kill a sweep again and again, repeat its command each time, and compare the end with an undisturbed sweep.

python tests/reliability/kills.py --kills 200 --write docs/reliability.md
python tests/reliability/kills.py --program loop --kills 100 --write docs/reliability.md
"""

import argparse
import csv
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from commands import DEADLINE_SECONDS, POLL_SECONDS, killed_at_exit, wait_until
from loops import ForkedLoop
from page import write_row
from programs import Process, Sweep

from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.storage.reader import read_epochs

PROGRAMS = {"sweep": Sweep, "loop": ForkedLoop}
_LATEST = 0.6  # latest time of a kill after the sweep runs, as a share of the time of an undisturbed sweep


def differences(one: Sweep, other: Sweep) -> list[str]:
    """Compare two sweeps: rows of epochs and results without times, and the whole training state."""
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
    return found


_COLUMNS = ("run", "status", "reason", "epoch", "epochs", "loss", "accuracy", "val_loss", "val_accuracy", "samples")


def _rows(sweep: Sweep, file: str) -> list[dict[str, str]]:
    with (sweep.paths.root / file).open(newline="") as lines:
        rows = [{key: row[key] for key in _COLUMNS if key in row} for row in csv.DictReader(lines)]
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
    epochs_lost: int = 0
    epochs_run_twice: int = 0
    differing: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.epochs_lost or self.epochs_run_twice or self.differing)


@dataclass(frozen=True)
class _Snapshot:
    """The finished epochs of a killed run, and how many epochs had begun in the sweep by then."""

    paths: RunPaths
    epochs: Sequence[EpochRecord]
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
            driver = sweep.start()
            self.tally.commands += 1
            with killed_at_exit(driver):
                while targets and self._kill_once(sweep, driver, targets[-1], within=_LATEST * seconds):
                    self.tally.kills[targets.pop()] += 1
                status = driver.wait(DEADLINE_SECONDS)
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
        if target == "run":
            victims = [self._random.choice(victims)]
            if victims[0].owner.is_alive() is not True:
                return False
            try:
                os.kill(victims[0].owner.pid, signal.SIGKILL)
            except ProcessLookupError:  # it has just ended
                return False
        elif target == "driver":
            driver.kill()
        else:
            os.killpg(driver.pid, signal.SIGKILL)
        if target != "run":
            driver.wait(DEADLINE_SECONDS)
        wait_until(lambda: all(each.owner.is_alive() is False for each in victims), "the death of the runs")
        self._take_snapshots(sweep, victims if target == "run" else sweep.records())
        return True

    def _take_snapshots(self, sweep: Sweep, records: Sequence[RunRecord]) -> None:
        num_begun = len(sweep.begun())
        for record in records:
            paths = sweep.paths.run(record.name)
            self._snapshots.append(_Snapshot(paths, read_epochs(paths), num_begun))

    def _compare(self, sweep: Sweep, reference: Sweep) -> None:
        begun = sweep.begun()
        lost, twice = set(), set()
        for snapshot in self._snapshots:
            name, now = snapshot.paths.name, read_epochs(snapshot.paths)
            lost |= {(name, epoch.epoch) for epoch in snapshot.epochs if epoch not in now}
            done = snapshot.epochs[-1].epoch if snapshot.epochs else 0
            twice |= {each for each in begun[snapshot.num_begun :] if each[0] == name and each[1] <= done}
        self.tally.epochs_lost += len(lost)
        self.tally.epochs_run_twice += len(twice)
        self.tally.differing += differences(sweep, reference)

    def reference(self, variant: str) -> tuple[Sweep, float]:
        """Return the undisturbed sweep of a variant, and how many seconds it took."""
        if variant not in self._undisturbed:
            sweep = self._program(self._folder, variant, f"undisturbed-{variant}")
            self._undisturbed[variant] = sweep, sweep.run()
        return self._undisturbed[variant]


ROWS = {"sweep": r"\d+ SIGKILLs (?!of custom loops)", "loop": r"\d+ SIGKILLs of custom loops "}
"""Beginnings of the rows in docs/reliability.md, by program."""


def row(tally: Tally, *, seed: int, program: str = "sweep") -> str:
    """Return the row of docs/reliability.md."""
    kills = tally.kills.total()
    targets = ", ".join(f"{tally.kills[target]} of {_WORDS[program][target]}" for target in PROGRAMS[program].targets)
    whole, option = ("the undisturbed sweeps", "") if program == "sweep" else ("undisturbed runs", "--program loop ")
    outcome = (
        f"{tally.epochs_lost} finished epochs lost, {tally.epochs_run_twice} run twice, "
        f"{len(tally.differing)} differences from {whole}"
    )
    command = f"`python tests/reliability/kills.py {option}--kills {kills} --seed {seed}`"
    where = f"{tally.sweeps} sweeps" if program == "sweep" else f"{tally.sweeps} runs"
    what = f"{kills} SIGKILLs {'' if program == 'sweep' else 'of custom loops '}({targets}) in {where}"
    return f"| {what}, {tally.commands} commands | {outcome} | {command} |"


_WORDS = {
    "sweep": {"driver": "the driver", "run": "a run", "group": "the driver's process group"},
    "loop": {"driver": "the program", "group": "its process group"},
}


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
    if options.write is not None:
        write_row(options.write, ROWS[options.program], line)
    return 0 if tally.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
