"""Let the first of four cells die in each of eight ways under each launcher; report which cells finish.

python tests/reliability/deaths.py --write docs/reliability.md
"""

import argparse
import contextlib
import importlib.util
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from commands import ROOT, killed_at_exit, start_python
from dying_programs import JOB, DyingProgram
from page import write_row
from preempted import Six, six_cells
from sweeps import states_of

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep

FINE = ("one", "two", "three")
_LIMIT_SECONDS = 45  # per run, for launchers with such a limit; healthy runs must keep it even on a busy machine
_TIMEOUT_SECONDS = 300  # for commands that do not end by themselves
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Death:
    """A way to die: its name in the model, its words on the page, the expected state and message, its overrides."""

    way: str
    words: str
    state: tuple[str, str]
    message: str
    overrides: tuple[str, ...] = ()


_UNPRINTED = "Python could not print the exception: "  # as its worker is dead, it sometimes loses sys.stderr first

DEATHS = {
    death.way: death
    for death in (
        Death("raises", "an exception", ("failed", "exception"), "ValueError: this model wants no data"),
        Death("exits", "`sys.exit(3)`", ("failed", "exit"), "sys.exit(3)"),
        Death("killed", "SIGKILL", ("killed", "signal"), "SIGKILL"),
        Death("segfaults", "SIGSEGV", ("killed", "signal"), "SIGSEGV"),
        Death("hangs", "a hang", ("killed", "timeout"), "timeout="),
        Death("memory", "MemoryError", ("failed", "out_of_memory"), "MemoryError: all is full"),
        Death("diverges", "a loss of NaN", ("failed", "diverged"), "loss is nan"),
        # The wording of torch varies.
        Death("loader", "a dead loader worker", ("failed", "exception"), "Error: ", ("num_workers=1",)),
    )
}


@dataclass(frozen=True)
class Launcher:
    """A launcher: its name in Hydra, its overrides, its time limit of a run, and the package that it needs."""

    name: str
    overrides: tuple[str, ...] = ()
    limit: tuple[str, ...] = ()
    package: str | None = None

    @property
    def is_ours(self) -> bool:
        return self.name in ("local", "slurm", "ray")

    def overrides_for(self, death: Death) -> list[str]:
        """Return the overrides for the built-in job."""
        return [*death.overrides, *self.overrides, *(self.limit if death.way == "hangs" else ())]


_SECONDS = (f"hydra.launcher.timeout={_LIMIT_SECONDS}",)
LAUNCHERS = {
    launcher.name: launcher
    for launcher in (
        Launcher("local", limit=_SECONDS),
        Launcher("slurm", ("hydra.launcher.poll_seconds=0.3",), _SECONDS),
        Launcher("ray", ("hydra.launcher.workers=2",), _SECONDS, "ray"),
        Launcher("basic"),
        # With one job it would run all cells in the driver's process.
        Launcher("joblib", ("hydra.launcher.n_jobs=2",), _SECONDS, "hydra_plugins.hydra_joblib_launcher"),
        Launcher("submitit_local", (), ("hydra.launcher.timeout_min=3",), "hydra_plugins.hydra_submitit_launcher"),
    )
}


@dataclass(frozen=True)
class Seen:
    """How one such sweep ended: states by cell, the message of the first cell, the command's exit status.

    The status is None if the command had to be killed, negative if a signal ended it.
    """

    death: Death
    states: Mapping[str, tuple[str, str | None]]
    message: str
    status: int | None

    @property
    def num_finished(self) -> int:
        return sum(self.states[way] == ("finished", None) for way in FINE)

    @property
    def is_as_promised(self) -> bool:
        is_told = self.death.message in self.message or (
            self.death.way == "loader" and self.message.startswith(_UNPRINTED)
        )
        is_truthful = self.states[self.death.way] == self.death.state and is_told
        return is_truthful and self.num_finished == 3 and self.status == 1

    def in_words(self) -> str:
        """Describe the result for a cell of the page: the state of the dead cell, and what else was not as usual.

        Usually the three others finish, and the command ends with status 1.
        """
        if self.num_finished == len(FINE) and self.status == 1:
            return _state(self.states[self.death.way])
        others = Counter(self.states[way] for way in FINE if self.states[way] != ("finished", None))
        states = [
            _state(self.states[self.death.way]),
            *(f"{number} {_state(state)}" for state, number in others.items()),
        ]
        return f"{self.num_finished} finished; {', '.join(states)}; {self._end()}"

    def _end(self) -> str:
        if self.status is None:
            return "never ended"
        return f"status {self.status}" if self.status >= 0 else f"died of {signal.Signals(-self.status).name}"


def _state(state: tuple[str, str | None]) -> str:
    return f"`{state[0]} ({state[1]})`" if state[1] else f"`{state[0]}`"


def try_death(
    folder: Path,
    launcher: Launcher,
    death: Death,
    *,
    program: DyingProgram = JOB,
    variables: Mapping[str, str] | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> Seen:
    """Run the four cells from `folder`, which must not exist yet, and return how they ended."""
    overrides = launcher.overrides_for(death) if program is JOB else launcher.overrides
    words = program.words(launcher.name, overrides, ",".join((death.way, *FINE)), death.way == "hangs")
    status = _run(folder, program, words, variables, timeout_seconds)
    return _seen(folder, program, death, status)


def try_together(folder: Path, launcher: Launcher, *, variables: Mapping[str, str] | None = None) -> list[Seen]:
    """Run one sweep with a cell for each way to die among the three that finish, and return how each of them ended."""
    ways = list(DEATHS)
    for place, way in zip((1, 5, 9), FINE, strict=True):
        ways.insert(place, way)
    overrides = [word for death in DEATHS.values() for word in death.overrides]
    words = JOB.words(launcher.name, [*overrides, *launcher.overrides, *launcher.limit], ",".join(ways), True)
    status = _run(folder, JOB, words, variables, _TIMEOUT_SECONDS)
    return [_seen(folder, JOB, death, status) for death in DEATHS.values()]


def _run(
    folder: Path,
    program: DyingProgram,
    words: Sequence[str],
    variables: Mapping[str, str] | None,
    timeout_seconds: float,
) -> int | None:
    """Run the command and wait for all its processes; return its exit status, None if it had to be killed."""
    for name, text in program.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    process = start_python(folder, *words, log=folder / "log", variables=variables)
    with killed_at_exit(process):
        try:
            status: int | None = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            status = None
    _wait_for_processes_in(folder, timeout_seconds=0 if status is None else timeout_seconds)
    return status


def _seen(folder: Path, program: DyingProgram, death: Death, status: int | None) -> Seen:
    sweep = SweepPaths(folder / "outputs" / "four")
    messages = [run.record.message for run in read_sweep(sweep).runs if f"way={death.way}-" in run.record.name]
    told = replace(death, message=program.messages.get(death.way, death.message))
    return Seen(told, states_of(sweep, program.setting), "".join(messages), status)


def _wait_for_processes_in(folder: Path, *, timeout_seconds: float) -> None:
    """Wait for jobs that outlive the command, found by their working folder, and kill them after the timeout.

    Raises `TimeoutError` if one survives.
    """
    until = time.monotonic() + timeout_seconds
    while left := _processes_in(folder):
        if time.monotonic() >= until:
            for each in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        if time.monotonic() >= until + _TIMEOUT_SECONDS:
            raise TimeoutError(f"{left} do not end")
        time.sleep(0.1)


def _processes_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(folder.resolve()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def missing_requirement(launcher: Launcher) -> str | None:
    """Return why this launcher cannot be tried here; None if it can."""
    if launcher.package is not None and importlib.util.find_spec(launcher.package) is None:
        return f"{launcher.package} is not installed"
    return None


def row(death: Death, seen: Mapping[str, Seen]) -> str:
    """Return the row of a death in docs/reliability.md."""
    return (
        f"| {death.words} | " + " | ".join(seen[n].in_words() if n in seen else NOT_MEASURED for n in LAUNCHERS) + " |"
    )


SUMMARY = "8 ways to die, each in cell 1 of 4"
SIX = "6 cells on Slurm, one SIGKILLed and one preempted"
_SIX_CELLS = "six"
_COMMAND = "`python tests/reliability/deaths.py`"


def summary(rows: Sequence[str]) -> str:
    """Return the summary row of all deaths, made of their rows on the page."""
    columns = zip(*(line.strip("| ").split(" | ")[1:] for line in rows), strict=True)
    launchers: dict[str, list[str]] = {}
    for launcher, cells in zip(LAUNCHERS.values(), columns, strict=True):
        if NOT_MEASURED in cells:
            result = NOT_MEASURED
        elif launcher.is_ours:
            kept = sum(cell == _promised(death) for cell, death in zip(cells, DEATHS.values(), strict=True))
            result = f"{kept} of {len(cells)} times 3 finished and 1 truthful, status 1"
        else:
            whole = sum(cell.startswith("3 finished;") or ";" not in cell for cell in cells)
            result = f"{whole} of {len(cells)} times 3 finished"
        launchers.setdefault(result, []).append(f"`{launcher.name}`")
    parts = [f"{', '.join(names)}: {result}" for result, names in launchers.items()]
    return f"| {SUMMARY} | {'; '.join(parts)} ([each](#eight-ways-to-die)) | {_COMMAND} |"


def _promised(death: Death) -> str:
    states: dict[str, tuple[str, str | None]] = dict.fromkeys(FINE, ("finished", None))
    return Seen(death, {death.way: death.state, **states}, death.message, 1).in_words()


def six_row(waited: Six | None, detached: Six | None) -> str:
    """Return the row of the six cells; None means not measured."""
    if waited is None or detached is None:
        return f"| {SIX} | {NOT_MEASURED} | {_COMMAND} |"
    counts = Counter(_state(state) for state in waited.states.values())
    states = ", ".join(f"{number} {state}" for state, number in counts.items())
    same = "the same" if detached.states == waited.states else "not the same"
    watched = "showed each end as it came" if detached.was_watched else "did not show each end as it came"
    alone = f"detached: {same}, and `watch` {watched} and left with status {detached.status}"
    return f"| {SIX} | {states}, status {waited.status}; {alone} | {_COMMAND} |"


@contextlib.contextmanager
def slurm_or_none(folder: Path) -> Iterator[Any]:
    """Run a Slurm on loopback; None if that is not possible here."""
    sys.path.insert(0, str(ROOT / "tests" / "slurm"))
    from loopback import running_slurm
    from loopback import unavailable_reason as slurm_lacks

    if lacking := slurm_lacks():
        print(f"slurm: {NOT_MEASURED}: {lacking}")
        yield None
        return
    folder.mkdir()
    with running_slurm(folder) as slurm:
        yield slurm


def _all(
    folder: Path, launchers: Sequence[Launcher], deaths: Sequence[Death], slurm: Any
) -> Iterator[tuple[tuple[str, str], Seen]]:
    for launcher in launchers:
        if lacking := missing_requirement(launcher):
            print(f"{launcher.name}: {NOT_MEASURED}: {lacking}")
        if lacking or (launcher.name == "slurm" and slurm is None):
            continue
        variables = slurm.variables if launcher.name == "slurm" else None
        for death in deaths:
            seen = try_death(folder / f"{launcher.name}-{death.way}", launcher, death, variables=variables)
            print(f"{launcher.name}: {death.words}: {seen.in_words()}", flush=True)
            yield (launcher.name, death.way), seen


def _sixes(folder: Path, slurm: Any) -> tuple[Six, Six]:
    for name in ("waited", "detached"):
        (folder / name).mkdir()
    return (
        six_cells(folder / "waited", slurm, is_detached=False),
        six_cells(folder / "detached", slurm, is_detached=True),
    )


def main() -> int:
    """Run the command line; return 1 if one of our launchers did not behave as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launchers", default=",".join(LAUNCHERS), help="only these columns")
    parser.add_argument("--rows", default=",".join((*DEATHS, _SIX_CELLS)), help="only these rows")
    parser.add_argument("--write", type=Path, help="page whose rows are replaced by the results")
    options = parser.parse_args()
    chosen = [LAUNCHERS[name] for name in options.launchers.split(",")]
    names = options.rows.split(",")
    deaths = [DEATHS[way] for way in names if way != _SIX_CELLS]
    if options.write and len(chosen) != len(LAUNCHERS):
        parser.error("--write must come with every launcher: rows are written as a whole")
    with tempfile.TemporaryDirectory() as temporary, slurm_or_none(Path(temporary) / "slurm") as slurm:
        seen = dict(_all(Path(temporary), chosen, deaths, slurm))
        sixes = _sixes(Path(temporary), slurm) if _SIX_CELLS in names and slurm else (None, None)
    rows = {d.words: row(d, {n: each for (n, way), each in seen.items() if way == d.way}) for d in deaths}
    if _SIX_CELLS in names:
        rows[SIX] = six_row(*sixes)
    for line in rows.values():
        print(line)
    if options.write:
        _write(options.write, rows)
    ours = [each.is_as_promised for (name, _), each in seen.items() if LAUNCHERS[name].is_ours]
    return 0 if all(ours) and all(six is None or six.is_as_promised for six in sixes) else 1


def _write(page: Path, rows: Mapping[str, str]) -> None:
    for words, line in rows.items():
        write_row(page, rf"{re.escape(words)} \|", line)
    lines = page.read_text().splitlines()
    of_deaths = [next(line for line in lines if line.startswith(f"| {d.words} |")) for d in DEATHS.values()]
    write_row(page, rf"{re.escape(SUMMARY)} \|", summary(of_deaths))


if __name__ == "__main__":
    sys.exit(main())
