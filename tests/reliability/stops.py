"""Ask cells of all kinds of programs to stop, which take that as they like; report what is stored of them.

python tests/reliability/stops.py --write docs/reliability.md
"""

import argparse
import os
import re
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from commands import DEADLINE_SECONDS, killed_at_exit, start_python, wait_until
from page import write_row
from stopped_programs import APPLICATION, FINISHED, INTERRUPTED, JOB, LOGS, SCRIPT, StoppedProgram
from sweeps import states_of

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep

State = tuple[str, str | None]
_LIMIT = "60"  # seconds; the cells of a sweep on a busy machine are ready earlier


@dataclass(frozen=True)
class How:
    """How cells are asked to stop: in words, the signals to the driver or the cells, and the promised reason.

    `ends` are the ways whose cells are still there then and are killed.
    """

    words: str
    numbers: tuple[int, ...] = ()
    to_cells: bool = False
    options: Mapping[str, str] | None = None
    reason: str = "interrupted"
    status: int = 130


HOWS = {
    "once": How("Ctrl-C", (signal.SIGINT,)),
    "terminated": How("SIGTERM", (signal.SIGTERM,)),
    "twice": How("Ctrl-C twice", (signal.SIGINT, signal.SIGTERM)),  # two equal signals may merge into one
    "outside": How("SIGTERM to the cell", (signal.SIGTERM,), to_cells=True, status=1),
    "timeout": How("`--timeout`", options={"timeout": _LIMIT}, reason="timeout", status=1),
}


@dataclass(frozen=True)
class Stopped:
    """What was stored after the stop: states by way, exit status, and the output; then the same after a rerun.

    `ranked` are the ways that `results.csv` has a rank or an outcome of... in the table of finished cells.
    """

    states: Mapping[str, State]
    promised: Mapping[str, State]
    status: int
    promised_status: int
    again: Mapping[str, State]
    status_again: int
    attempts: Mapping[str, int]
    log: str

    @property
    def untrue(self) -> dict[str, State]:
        """The states that are not as promised."""
        return {way: state for way, state in self.states.items() if state != self.promised[way]}

    @property
    def is_as_promised(self) -> bool:
        """Whether each cell has the promised state, and the same command has run all that were stopped again."""
        ran_again = {way: 1 if state == FINISHED else 2 for way, state in self.promised.items()}
        is_whole = set(self.again.values()) == {FINISHED} and self.attempts == ran_again
        return not self.untrue and self.status == self.promised_status and is_whole and self.status_again == 0


def try_stop(
    folder: Path,
    program: StoppedProgram,
    how: How,
    *,
    ways: Mapping[str, State] | None = None,
    options: Mapping[str, str] | None = None,
) -> Stopped:
    """Stop the cells of all `ways` at once, in `folder`, which must not exist yet; then give the same command again."""
    ways = program.ways if ways is None else ways
    for name, text in program.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    sweep, log = SweepPaths(folder / "outputs" / "stopped"), folder / "log"
    given = {"workers": str(len(ways)), **(how.options or {}), **(options or {})}
    command = program.words(list(ways), given)
    process = start_python(folder, *command, log=log)
    with killed_at_exit(process):
        wait_until(lambda: process.poll() is not None or _num_ready(folder) == len(ways), "cells that wait")
        _ask(how, process.pid, sweep)
        if how.numbers and len(how.numbers) == 1 and not how.to_cells:
            wait_until(lambda: process.poll() is not None or "Stopping" in log.read_text(), "what the driver says")
        if len(how.numbers) == 1:
            (folder / "go-on").touch()  # those that do not listen
        status = process.wait(DEADLINE_SECONDS)
    states = states_of(sweep, program.setting)
    reason = {INTERRUPTED: ("killed", how.reason)}
    promised = {way: reason.get(state, state) for way, state in ways.items()}
    (folder / "calm").touch()
    with killed_at_exit(process := start_python(folder, *command, log=folder / "again.log")):
        status_again = process.wait(DEADLINE_SECONDS)
    again = states_of(sweep, program.setting)
    attempts = {_way(run.record.name, ways): run.record.attempt for run in read_sweep(sweep).runs}
    return Stopped(states, promised, status, how.status, again, status_again, attempts, log.read_text())


def _ask(how: How, driver: int, sweep: SweepPaths) -> None:
    if not how.to_cells:
        for number in how.numbers:
            os.kill(driver, number)
        return
    for run in read_sweep(sweep).runs:
        if run.record.owner is not None:
            os.kill(run.record.owner.pid, how.numbers[0])


def _num_ready(folder: Path) -> int:
    return len(list(folder.glob("ready-*")))


def _way(run: str, ways: Mapping[str, State]) -> str:
    return next(way for way in sorted(ways, key=len, reverse=True) if f"way={way}-" in run)


if __name__ == "__main__":
    for program in sys.argv[1].split(","):
        p = {"job": JOB, "application": APPLICATION, "script": SCRIPT}[program]
        for h in sys.argv[2].split(","):
            ways = {"logs": LOGS}.get(sys.argv[3]) if len(sys.argv) > 3 else None
            if len(sys.argv) > 3 and ways is None and sys.argv[3] != "all":
                ways = {w: {**p.ways, **LOGS}[w] for w in sys.argv[3].split(",")}
            with tempfile.TemporaryDirectory() as t:
                s = try_stop(Path(t) / "x", p, HOWS[h], ways=ways, options=dict(x.split("=") for x in sys.argv[4:]))
                print(program, h, "OK" if s.is_as_promised else "NOT", "untrue:", s.untrue, "status", s.status, s.status_again, s.attempts, s.again if set(s.again.values()) != {FINISHED} else "")
                if "-v" in os.environ.get("V", ""): print(s.log)
