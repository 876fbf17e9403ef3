"""A duel of two commits, or of two Python environments: both sides run as sweeps of their own, and take turns."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runmanager.app.driver.remote_sessions import DUEL_VARIABLE, DuelAddress
from runmanager.app.duel.duel_side import DuelSide, checked_out
from runmanager.app.duel.project_imports import files_outside, files_within, find_outside, refusal
from runmanager.app.duel.turn_server import TurnServer
from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep
from runmanager.signals import handle_signals
from runmanager.text import pluralize

__all__ = ["DuelRequest", "DuelResult", "run_duel"]

_CLI = "import sys; from runmanager.cli.main import main; sys.exit(main())"
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

    sweeps = tuple(_sweep_of(request, side) for side in sides)
    server = TurnServer(home / "turns", check)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for index, side in enumerate(sides):
            address = DuelAddress(index, os.getpid(), str(home / "turns"))
            processes.append(_start(request, side, sweeps[index], address))
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


def _sweep_of(request: DuelRequest, side: DuelSide) -> SweepPaths:
    return SweepPaths(Path(request.output_root).absolute() / f"{request.name}-{side.role}")


def _start(request: DuelRequest, side: DuelSide, sweep: SweepPaths, address: DuelAddress) -> "subprocess.Popen[bytes]":
    root = str(sweep.root.parent)
    if request.script is None:
        names = [f"name={sweep.name}", f"output_root={root}", "measure=paired"]
        command = [side.python, "-m", "runmanager", "-m", *names, *request.words, "--quiet", "--yes"]
    else:
        # The script's folder, not this command's, decides what it imports.
        options = ["--name", sweep.name, "--output-root", root, "--python", side.python, "--quiet", "--yes"]
        command = [side.python, "-c", _CLI, "sweep", *options, *request.script_options, request.script, *request.words]
    return subprocess.Popen(command, cwd=side.folder, env=side.environment() | {DUEL_VARIABLE: str(address)})


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
