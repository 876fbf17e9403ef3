"""Planning a sweep: what to do with each cell, sweep.json, and the overrides that the launcher gets for a run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from runmanager.app.compose.compose_cells import Grid
from runmanager.app.compose.override_quoting import quote_text
from runmanager.errors import UsageError
from runmanager.launching.plan import Action, PlannedCells, PlannedRun, Resume, needs_epochs, plan_runs
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import Environment
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_sweep
from runmanager.records.sweep.sweep_record import write_cells
from runmanager.tracking.environment.code_hashes import CodeRehasher
from runmanager.tracking.environment.environment import command_line, git_commit, library_versions

__all__ = ["assign_folder", "overrides_of", "plan_sweep", "write_plan"]


def plan_sweep(grid: Grid, sweep: SweepPaths | None) -> list[PlannedRun]:
    """Decide for each cell of `grid` whether to run it, given the runs stored in `sweep`; None is a new sweep.

    Raises `UsageError` under `resume=must` without stored runs.
    """
    config = grid.configs[0]
    commit, is_clean = git_commit(Path.cwd())
    now = Environment(commit=commit, commit_clean=is_clean, libraries=library_versions())
    stored = read_sweep(sweep, epochs_of=needs_epochs) if sweep else None
    if config.resume == Resume.MUST and not (stored and stored.runs):
        where = sweep.root if sweep else "a fresh folder"
        raise UsageError(f"`resume=must` must find runs in {where}, got none; leave it out to start.")
    return plan_runs(
        grid.cells,
        stored.runs if stored else (),
        sweep or SweepPaths(Path(config.output_root) / "<new>"),
        resume=Resume(config.resume),
        rerun_changed=config.rerun_changed,
        now=now,
        code_of=CodeRehasher(Path.cwd()).rehash,
        damaged=stored.damaged if stored else (),
    )


def write_plan(sweep: SweepPaths, plan: Sequence[PlannedRun], grid: Grid, driver: ProcessIdentity) -> dict[str, str]:
    """Write sweep.json; return the name of each cell's run by the cell's signature."""
    record = write_cells(sweep, PlannedCells(plan), axes=grid.axes, command=command_line(), driver=driver)
    return {cell.signature: cell.run for cell in record.planned}


def assign_folder(run: PlannedRun, sweep: SweepPaths, names: Mapping[str, str]) -> PlannedRun:
    """Return the run with its folder: the stored one, or for a new run that of the first driver to plan it."""
    if run.stored is not None:
        return run
    return replace(run, paths=sweep.run(names.get(run.cell.signature, run.cell.name)))


def overrides_of(run: PlannedRun, sweep: SweepPaths) -> list[str]:
    """Return the overrides with which the launcher composes the cell, including its run folder."""
    words = [*run.cell.overrides, f"hydra.sweep.dir={quote_text(str(sweep.root))}"]
    words.append(f"hydra.sweep.subdir={quote_text(f'runs/{run.paths.name}')}")
    if run.action is Action.START_AGAIN and run.stored is not None and run.stored.status is Status.FINISHED:
        words.append("resume=never")  # unfinished runs start again without it, unless another driver has finished them
    return words
