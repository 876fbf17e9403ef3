"""Ask the cells of all kinds of programs to stop, which take that as they like; report what is stored of them.

python tests/reliability/stops.py --write docs/reliability.md
"""

import argparse
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from commands import DEADLINE_SECONDS, killed_at_exit, start_python, wait_until
from deaths import NOT_MEASURED
from page import write_row
from stopped_programs import APPLICATION, FINISHED, INTERRUPTED, JOB, LOGS, SCRIPT, StoppedProgram
from sweeps import states_of

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep

State = tuple[str, str | None]
_LIMIT_SECONDS = 45  # all cells of a sweep are ready earlier, on a busy machine too


@dataclass(frozen=True)
class How:
    """How cells are asked to stop: its words, the signals to the driver or to the cells, and the promised reason.

    `leaves_time`: those that do not listen end by themselves afterwards; otherwise they are killed, and so are those
    that would end their last epoch.
    """

    words: str
    numbers: tuple[int, ...] = ()
    to_cells: bool = False
    leaves_time: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    reason: str = "interrupted"
    status: int = 130

    def promised(self, ways: Mapping[str, State]) -> dict[str, State]:
        """Return the promised state of each way."""
        killed = ("killed", self.reason)
        return {way: killed if state == INTERRUPTED or not self.leaves_time else state for way, state in ways.items()}


HOWS = {
    "once": How("Ctrl-C", (signal.SIGINT,)),
    "terminated": How("SIGTERM", (signal.SIGTERM,)),
    "twice": How("Ctrl-C twice", (signal.SIGINT, signal.SIGTERM), leaves_time=False),  # two equal ones may merge
    "outside": How("SIGTERM to each cell", (signal.SIGTERM,), to_cells=True, status=1),
    "timeout": How(
        "a time limit", leaves_time=False, options={"timeout": str(_LIMIT_SECONDS)}, reason="timeout", status=1
    ),
}


@dataclass(frozen=True)
class Column:
    """A column of the page: a program, its ways, and the number of its ranks."""

    words: str
    program: StoppedProgram
    ways: Mapping[str, State]
    processes: int = 1
    hows: Sequence[str] = tuple(HOWS)


_RANKED = dict.fromkeys(("exits", "flags", "raises", "ignores", "nothing"), INTERRUPTED)
COLUMNS = (
    Column("job", JOB, JOB.ways),
    Column("application", APPLICATION, APPLICATION.ways),
    Column("script", SCRIPT, SCRIPT.ways),
    Column("application that logs", APPLICATION, LOGS, hows=("once", "terminated", "outside")),
    Column("script that logs", SCRIPT, LOGS, hows=("once", "terminated", "outside")),
    Column("application in 2 ranks", APPLICATION, _RANKED, 2, ("once", "outside")),
    Column("script in 2 ranks", SCRIPT, _RANKED, 2, ("once", "outside")),
)


@dataclass(frozen=True)
class Stopped:
    """What was stored after the stop, by way: states and attempts; and after the same command was given once more."""

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
        """Whether each cell has the promised state, and the same command has run those that were stopped again."""
        ran_again = {way: 1 if state == FINISHED else 2 for way, state in self.promised.items()}
        is_whole = set(self.again.values()) == {FINISHED} and self.attempts == ran_again
        return not self.untrue and self.status == self.promised_status and is_whole and self.status_again == 0

    def in_words(self) -> str:
        """Describe the result for a cell of the page."""
        kept = len(self.states) - len(self.untrue)
        status = "" if self.status == self.promised_status else f"; status {self.status}"
        finished = sum(state == FINISHED for state in self.again.values())
        again = "" if finished == len(self.states) else f"; then {finished} finished"
        return f"{kept} of {len(self.states)}{status}{again}"


def try_stop(
    folder: Path,
    program: StoppedProgram,
    how: How,
    *,
    ways: Mapping[str, State] | None = None,
    processes: int = 1,
    meanwhile: Callable[[SweepPaths], object] = lambda sweep: None,
) -> Stopped:
    """Stop the cells of all `ways` together, in `folder`, which must not exist yet; then give the command again.

    `meanwhile` is called in between.
    """
    ways = program.ways if ways is None else ways
    for name, text in program.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    sweep, log = SweepPaths(folder / "outputs" / "stopped"), folder / "log"
    ranks = {"processes_per_run": str(processes)} if processes > 1 else {}
    command = program.words(list(ways), {"workers": str(len(ways)), **how.options, **ranks})
    process = start_python(folder, *command, log=log)
    with killed_at_exit(process):
        wait_until(lambda: process.poll() is not None or _num_ready(folder, sweep) == len(ways), "cells that wait")
        if how.to_cells:
            _signal_cells(sweep, how.numbers[0])
        else:
            for number in how.numbers:
                process.send_signal(number)
        if how.leaves_time:
            said = "killed" if how.to_cells else "Stopping"
            wait_until(lambda: process.poll() is not None or said in log.read_text(), "what the driver says")
            (folder / "go-on").touch()
        status = process.wait(DEADLINE_SECONDS)
    states = states_of(sweep, program.setting)
    meanwhile(sweep)
    (folder / "calm").touch()
    with killed_at_exit(process := start_python(folder, *command, log=folder / "again.log")):
        status_again = process.wait(DEADLINE_SECONDS)
    attempts = {_way(run.record.name, ways): run.record.attempt for run in read_sweep(sweep).runs}
    return Stopped(
        states,
        how.promised(ways),
        status,
        how.status,
        states_of(sweep, program.setting),
        status_again,
        attempts,
        log.read_text(),
    )


def _signal_cells(sweep: SweepPaths, number: int) -> None:
    for run in read_sweep(sweep).runs:
        if run.record.owner is not None:
            os.kill(run.record.owner.pid, number)


def _num_ready(folder: Path, sweep: SweepPaths) -> int:
    """The number of cells that wait, and of those that have ended already."""
    ended = sum(run.record.status.is_ended for run in read_sweep(sweep).runs) if sweep.record.exists() else 0
    return len(list(folder.glob("ready-*"))) + ended


def _way(run: str, ways: Mapping[str, State]) -> str:
    return next(way for way in ways if f"way={way}-" in run)


def row(how: How, seen: Mapping[str, Stopped]) -> str:
    """Return the row of a stop on the page; `seen` has its results by column."""
    cells = [seen[each.words].in_words() if each.words in seen else NOT_MEASURED for each in COLUMNS]
    return f"| {how.words} | {how.status} | {' | '.join(cells)} |"


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a cell was not told of as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hows", default=",".join(HOWS), help="only these rows")
    parser.add_argument("--write", type=Path, help="page whose rows are replaced by the results")
    options = parser.parse_args(words)
    is_good = True
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.hows.split(","):
            seen = {}
            for column in COLUMNS:
                if name not in column.hows:
                    continue
                folder = Path(temporary) / f"{name}-{column.words}"
                found = try_stop(folder, column.program, HOWS[name], ways=column.ways, processes=column.processes)
                seen[column.words] = found
                is_other = "" if found.is_as_promised else f"; not as promised: {found}"
                print(f"{column.words}: {HOWS[name].words}: {found.in_words()}{is_other}", flush=True)
                is_good = is_good and found.is_as_promised
            if options.write:
                write_row(options.write, rf"{re.escape(HOWS[name].words)} \|", row(HOWS[name], seen))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
