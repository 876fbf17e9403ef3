"""Removing sweeps and runs into the trash of their output folder, emptying it, and renaming sweeps."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runmanager.app.follow.sweep_state import CellState, SweepReader
from runmanager.app.request.command import format_override
from runmanager.errors import RecordError, UsageError
from runmanager.launching.job_registry import QUEUE_NAME
from runmanager.launching.launchers import local_queue
from runmanager.records.files.atomic_files import locked_folder
from runmanager.records.files.paths import RunPaths, SweepPaths, folder_name_fault, is_folder_name
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.program_report import ProgramKind, kind_of_program
from runmanager.records.storage.ownership import claim_next_attempt
from runmanager.records.storage.reader import read_record, run_names
from runmanager.records.storage.run_folder import release_claim
from runmanager.records.sweep.sweep_record import fresh_sweep_folder, mark_removed, read_sweep_record
from runmanager.text import shell_join
from runmanager.validation import fault

_TRASH = ".trash"


def continued_with(sweep: SweepPaths) -> str:
    """Return how the programs of a sweep's runs continue it, as the end of a sentence; empty where nothing does."""
    kinds, name = _kinds_of_sweep(sweep), sweep.root.name
    words = {
        ProgramKind.BUILT_IN: [format_override("name", name)],
        ProgramKind.SCRIPT: ["--name", name],
        ProgramKind.APPLICATION: [format_override("hydra.sweeper.name", name)],
    }
    commands = [shell_join(found) for kind, found in words.items() if kind in kinds]
    ways = [f"its command continues it with {' or '.join(commands)}"] if commands else []
    if ProgramKind.LOOP in kinds:
        ways.append(f"its program continues it where `RunManager` or `start_run` is given the folder {sweep.root}")
    return ", and ".join(ways)


def _kinds_of_sweep(sweep: SweepPaths) -> set[ProgramKind]:
    """The kinds of program that made those runs of a sweep that can be read."""
    kinds = set()
    for name in run_names(sweep):
        try:
            kinds.add(kind_of_program(read_record(sweep.run(name))))
        except RecordError:
            continue
    return kinds


def trash_of(output_root: Path) -> Path:
    """Return the folder for what was removed below `output_root`. Raises `UsageError` for a link in its place."""
    trash = output_root / _TRASH
    if trash.is_symlink():
        raise UsageError(f"{trash} must be a folder, got a link; remove the link.")
    return trash


def require_rest(sweep: SweepPaths, run: RunPaths | None = None) -> None:
    """Check that no process works on a sweep, or may do so on another host, and that none of its jobs is in a queue.

    With `run`, other runs of the sweep that are running without a driver are not an obstacle. Raises `UsageError` for
    living ones, and `RecordError` for a damaged sweep.json, which cannot tell.
    """
    reader = SweepReader(sweep, queue=local_queue())
    state = reader.read()
    cells = [cell for cell in state.cells if run is None or cell.paths.name == run.name]
    if alive := [cell for cell in cells if cell.is_running]:
        raise UsageError(f"{alive[0].paths.root} must have ended, got a run that {_life_in_words(alive[0])}.")
    if state.is_driven is not False:
        where = ", ".join(f"process {each.pid} on {each.host}" for each in reader.drivers_at_work)
        may = "is" if state.is_driven else "may be"
        raise UsageError(f"{sweep.root} must be at rest, got {where}, which {may} at work on it; end it there first.")
    # Without an answer of the queue, a cell that has not ended may still have a job.
    queued = [cell for cell in cells if cell.is_queued or (cell.is_queued is None and not cell.is_ended)]
    if queued:
        jobs = f"{len(queued)} of its cells may have jobs in {QUEUE_NAME}"
        raise UsageError(f"{sweep.root} must be at rest, got it while {jobs}; cancel them first.")


def _life_in_words(cell: CellState) -> str:
    record = cell.record
    if record is None or record.owner is None:
        return "says `running`"
    process = f"process {record.owner.pid} on {record.owner.host}"
    return f"may be alive: {process}" if record.is_running_elsewhere else f"is alive: {process}"


@contextmanager
def _at_rest(sweep: SweepPaths, run: RunPaths | None = None) -> Iterator[None]:
    """Keep other commands from beginning with the sweep in the block. Raises as `require_rest`."""
    if sweep.root.is_symlink() or (run is not None and run.root.is_symlink()):
        raise UsageError(f"{sweep.root if run is None else run.root} must be a folder, got a link to one.")
    with locked_folder(sweep.root):
        require_rest(sweep, run)
        yield


def remove_sweep(sweep: SweepPaths) -> Path:
    """Move a sweep at rest into the trash; return where it is now. Raises `UsageError` and `RecordError`."""
    root = _absolute(sweep.root)
    with _at_rest(SweepPaths(root)):
        target = fresh_sweep_folder(trash_of(root.parent)).root / root.name
        os.rename(root, target)
    return _shown(target)


def remove_run(run: RunPaths) -> Path:
    """Move a run that has ended into the trash and mark its cell as removed; return where it is now.

    A copy of a run is moved only: its cell stays. Raises `UsageError` and `RecordError`.
    """
    run = RunPaths(_absolute(run.root))
    sweep = run.sweep
    with _at_rest(sweep, run):
        signature = _cell_of(sweep, run)
        claim = _claim(run)
        try:
            if signature is not None:
                mark_removed(sweep, signature)  # before it is moved: a rerun must not begin the cell in between
            folder = fresh_sweep_folder(trash_of(sweep.root.parent)).root / sweep.root.name / sweep.runs.name
            folder.mkdir(parents=True)
            os.rename(run.root, folder / run.name)
            run = RunPaths(folder / run.name)
        finally:
            if claim is not None:
                release_claim(run.root / claim.name)
    return _shown(run.root)


def _claim(run: RunPaths) -> Path | None:
    """Claim the next attempt of a run, so that no process can begin it now; None where its record is damaged."""
    try:
        return claim_next_attempt(run, read_record(run), ProcessIdentity.current(), HeartbeatObserver())
    except RecordError:
        return None


def _cell_of(sweep: SweepPaths, run: RunPaths) -> str | None:
    """Return the signature of the run's cell; None if another folder holds the cell too, or it is not known."""
    found = _signature(run)
    if found is None:
        plan = read_sweep_record(sweep)
        return next((cell.signature for cell in (plan.planned if plan else ()) if cell.run == run.name), None)
    others = (_signature(sweep.run(name)) for name in run_names(sweep) if name != run.name)
    return None if found in others else found


def _signature(run: RunPaths) -> str | None:
    try:
        return read_record(run).signature
    except RecordError:
        return None


def rename_sweep(sweep: SweepPaths, name: str) -> SweepPaths:
    """Give a sweep at rest another name in the same output folder; return it. Raises `UsageError`, `RecordError`."""
    root = _absolute(sweep.root)
    if not is_folder_name(name):
        raise UsageError(folder_name_fault("NAME", name))
    target = root.with_name(name)
    with locked_folder(root.parent), _at_rest(SweepPaths(root)):
        if os.path.lexists(target):
            raise UsageError(fault("NAME", "be a new name", repr(name), f"{target} exists"))
        os.rename(root, target)
    return SweepPaths(target if sweep.root.name in ("", "..") else sweep.root.with_name(name))


def empty_trash(output_root: Path) -> None:
    """Delete for good what was removed below `output_root`. Raises `OSError` and `UsageError`."""
    shutil.rmtree(trash_of(output_root))


def _shown(path: Path) -> Path:
    """Return a path as people read it: relative to the current folder where it is below that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  # a link is not followed: it would be moved in its place
