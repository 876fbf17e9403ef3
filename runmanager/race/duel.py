"""A duel of two commits, or of two Python environments: both sides run as sweeps of their own, and take turns.

This process grants the turns of both:

```
begin        each side says that it is about to run a cell; the session begins when both have said so
job          each side's job connects, and asks for its turns
has_next     a side asks whether its processes are to be started again
ended        each side says that its job has ended; both learn whether a further session follows
```
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from runmanager.errors import UsageError
from runmanager.race.duel_side import DuelSide, checked_out, files_outside, files_within, find_outside, refusal
from runmanager.race.keeper import TurnKeeper
from runmanager.race.sessions import DUEL_VARIABLE, PairedSessions
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep
from runmanager.signals import handle_signals
from runmanager.text import pluralize
from runmanager.training.options.groups import PairedOptions

_CLI = "import sys; from runmanager.cli.main import main; sys.exit(main())"
_TICK_SECONDS = 0.2
_PATIENCE_SECONDS = 60.0  # for a side that is asked to end
_MAX_NAMED = 5


@dataclass(frozen=True)
class DuelRequest:
    """What is to be measured: the `words` of a built-in run, or those after the `script`, with the options before it.

    `revisions` and `pythons` have the baseline first; a side without a revision runs in the current folder.
    """

    name: str
    output_root: str
    words: Sequence[str]
    revisions: tuple[str | None, str | None]
    pythons: tuple[str, str]
    script: str | None = None
    script_options: Sequence[str] = ()


@dataclass(frozen=True)
class DuelResult:
    """The sweeps of both sides, their exit statuses, and a line a side on what it ran."""

    sweeps: tuple[SweepPaths, SweepPaths]
    statuses: tuple[int, int]
    lines: Sequence[str]


def run_duel(request: DuelRequest) -> DuelResult:
    """Run both sides in turns, and wait for them. The worktrees of commits are removed after.

    Raises `UsageError` for a revision or an interpreter that does not exist, a side that imports the project from
    outside its worktree, and one that cannot begin.
    """
    # A pipeline that is cancelled sends SIGTERM: the worktrees are removed then too.
    with handle_signals([signal.SIGTERM], _interrupt), checked_out(request.revisions, request.pythons) as sides:
        for side in sides:
            if outside := find_outside(side, request.script):
                raise UsageError(refusal(side, outside))
        home = Path(tempfile.mkdtemp(prefix="runmanager-turns-"))
        try:
            return _run(request, sides, home)
        finally:
            shutil.rmtree(home, ignore_errors=True)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _run(request: DuelRequest, sides: Sequence[DuelSide], home: Path) -> DuelResult:
    imported: dict[int, Sequence[str]] = {}

    def check(index: int, files: Sequence[str]) -> str | None:
        imported[index] = files
        outside = files_outside(sides[index], files)
        return refusal(sides[index], outside) if outside else None

    root = Path(request.output_root).absolute()
    sweeps = [SweepPaths(root / f"{request.name}-{side.role}") for side in sides]
    server = _TurnServer(home / "turns", check)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for index, side in enumerate(sides):
            processes.append(_start(request, side, sweeps[index], f"{index}:{os.getpid()}:{home / 'turns'}"))
        server.serve(processes)
    finally:
        _end(processes)
        server.close()
    if server.error is not None:
        raise UsageError(server.error)
    if not all(sweep.record.exists() for sweep in sweeps):
        missing = next(side.role for side, sweep in zip(sides, sweeps, strict=True) if not sweep.record.exists())
        raise UsageError(f"Both sides of a duel must begin, got no run of the {missing}; its message is above.")
    baseline, candidate = (process.returncode for process in processes)
    lines = [_line(side, sweeps[at], imported.get(at)) for at, side in enumerate(sides)]
    return DuelResult((sweeps[0], sweeps[1]), (baseline, candidate), lines)


def _start(request: DuelRequest, side: DuelSide, sweep: SweepPaths, address: str) -> "subprocess.Popen[bytes]":
    root = str(sweep.root.parent)
    if request.script is None:
        names = [f"name={sweep.name}", f"output_root={root}", "measure=paired"]
        command = [side.python, "-m", "runmanager", "-m", *names, *request.words, "--quiet", "--yes"]
    else:
        # The script's folder, not this command's, decides what it imports.
        options = ["--name", sweep.name, "--output-root", root, "--python", side.python, "--quiet", "--yes"]
        command = [side.python, "-c", _CLI, "sweep", *options, *request.script_options, request.script, *request.words]
    return subprocess.Popen(command, cwd=side.folder, env=side.environment() | {DUEL_VARIABLE: address})


def _end(processes: Iterable["subprocess.Popen[bytes]"]) -> None:
    """End the sides that still run: they are asked first, so that their runs are recorded."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(_PATIENCE_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()


def _line(side: DuelSide, sweep: SweepPaths, imported: Sequence[str] | None) -> str:
    """Return what a side ran: its commit, and the files of the project that it imported."""
    if side.worktree is None:
        return f"{side.description}."
    if imported is None:  # a script's process does not report: its record names the files that it reaches
        codes = [run.record.environment.code or {} for run in read_sweep(sweep).runs]
        files = sorted({name for code in codes for name in code})
    else:
        files = files_within(side, imported)
    more = f" and {len(files) - _MAX_NAMED} more" if len(files) > _MAX_NAMED else ""
    named = f": {', '.join(files[:_MAX_NAMED])}{more}" if files else ""
    return f"{side.description} imported {pluralize(len(files), 'file')} of its worktree{named}."


@dataclass
class _Driver:
    """A side's driver: its connection, and the message on which it waits for the other side, `begin` or `ended`."""

    pipe: Connection
    waits: dict[str, Any] | None = None

    def answer(self, **message: Any) -> None:
        self.waits = None
        with contextlib.suppress(OSError):  # it is gone, and its process will be seen to be
            self.pipe.send(message)


@dataclass
class _Group:
    """The pair of cells that takes turns now, with the signature of the baseline's."""

    signature: str
    sessions: PairedSessions
    keeper: TurnKeeper
    joined: set[int] = field(default_factory=set)


class _TurnServer:
    """Listens on a socket at `path`, and grants turns until both processes have ended.

    `check` gets the side and the files that its job has imported when it first asks for a measured turn, and returns an
    error, or nothing; after an error no turn is granted any more.
    """

    def __init__(self, path: Path, check: Callable[[int, Sequence[str]], str | None]) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._check = check
        self._drivers: dict[int, _Driver] = {}
        self._new: list[Connection] = []
        self._group: _Group | None = None
        self.error: str | None = None

    def close(self) -> None:
        self._listener.close()
        for driver in self._drivers.values():
            driver.pipe.close()

    def serve(self, sides: Sequence["subprocess.Popen[bytes]"]) -> None:
        """Grant turns until both sides have ended, or one has to wait for a side that will not come."""
        while any(side.poll() is None for side in sides) and self.error is None:
            self._receive(connection.wait([self._listener, *self._pipes()], timeout=_TICK_SECONDS))
            for index, driver in self._drivers.items():
                if driver.waits is None or sides[1 - index].poll() is None:
                    continue
                if driver.waits["kind"] == "begin":
                    driver.answer(refused="The other side of the duel has ended; its message says why.")
                else:
                    driver.answer(again=False)

    def _pipes(self) -> list[Connection]:
        drivers = [driver.pipe for driver in self._drivers.values() if not driver.pipe.closed]
        group = self._group
        # Until both have joined, one that is alone would be told that its turns are over.
        jobs = [] if group is None or len(group.joined) < 2 else group.keeper.pipes
        return [*self._new, *drivers, *jobs]

    def _receive(self, ready: Sequence[object]) -> None:
        if self._listener in ready:
            accepted, _ = self._listener.accept()
            self._new.append(Connection(accepted.detach()))
        for pipe in [each for each in self._new if each in ready]:
            self._new.remove(pipe)
            with contextlib.suppress(EOFError, OSError):
                self._introduce(pipe, pipe.recv())
        for side, driver in self._drivers.items():
            if driver.pipe in ready:
                try:
                    self._answer(side, driver, driver.pipe.recv())
                except (EOFError, OSError):
                    driver.pipe.close()
        if self._group is not None and len(self._group.joined) == 2:
            keeper = self._group.keeper
            keeper.receive(ready)
            for side in list(keeper.imported):
                self.error = self.error or self._check(side, keeper.imported.pop(side))

    def _introduce(self, pipe: Connection, message: dict[str, Any]) -> None:
        side = message["side"]
        if message["kind"] == "driver":
            self._drivers[side] = _Driver(pipe)
        elif self._group is not None:
            self._group.keeper.join(side, pipe)
            self._group.joined.add(side)
            self._group.keeper.started()

    def _answer(self, side: int, driver: _Driver, message: dict[str, Any]) -> None:
        group, kind = self._group, message["kind"]
        if kind == "has_next":
            driver.answer(has_next=group is not None and group.sessions.has_next)
            return
        driver.waits = message
        if kind == "ended" and group is not None and side not in group.joined:
            # Its job never came: what the other one waits for will not happen.
            group.joined |= {0, 1}
        waiting = [self._drivers[each].waits for each in range(2) if each in self._drivers]
        both = [each for each in waiting if each is not None and each["kind"] == kind]
        if len(both) < 2:
            return
        answer: dict[str, Any]
        if kind == "begin":
            self._group = group = self._begun(both)
            answer = {"session": group.keeper.session}
        else:
            answer = {
                "again": group is not None and group.sessions.has_next and all(each["can_repeat"] for each in both)
            }
        for driver in self._drivers.values():
            driver.answer(**answer)

    def _begun(self, begins: Sequence[dict[str, Any]]) -> _Group:
        signature = begins[0]["signature"]
        checkpoints = [Path(path) for begin in begins for path in begin["checkpoints"]]
        before = self._group
        if before is not None and before.signature == signature and any(each["again"] for each in begins):
            sessions = before.sessions
        else:  # where whole runs are the turns none is measured, so any options will do
            sessions = PairedSessions(PairedOptions(**(begins[0]["measure"] or {})))
        keeper = sessions.begin(
            [frozenset({0}), frozenset({1})],
            seed=int(signature[:8], 16),
            can_restart=lambda: all(checkpoint.exists() for checkpoint in checkpoints),
        )
        return _Group(signature, sessions, keeper)
