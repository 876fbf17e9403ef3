"""Planning a sweep: what to do with each cell, sweep.json, and the folder of each run.

Cells may be decided late, one after the other, from what the runs of their sweep have recorded by then.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from runmanager.app.driver.program import CellGrid, Program
from runmanager.app.driver.run_listener import Begun, SweepListener
from runmanager.errors import UsageError
from runmanager.launching.continuations import with_continuations
from runmanager.launching.launcher import CellJob, CellLauncher, Trait
from runmanager.launching.plan import (
    Action,
    PlannedCells,
    PlannedRun,
    PlanRules,
    Resume,
    lost_epochs,
    needs_epochs,
    plan_of,
    plan_runs,
)
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.run_record import Environment
from runmanager.records.settings.grid import is_seed
from runmanager.records.settings.signature import MAX_NAME_BYTES, readable_name
from runmanager.records.storage.ownership import silent_runs
from runmanager.records.storage.reader import StoredRun, SweepContents, read_sweep
from runmanager.records.storage.run_end import end_silent_run
from runmanager.records.sweep.sweep_record import (
    PlannedCell,
    SweepCommand,
    SweepRecord,
    add_cells,
    read_sweep_record,
    settings_of_cells,
    write_cells,
)
from runmanager.results.load.cells import independent_settings
from runmanager.text import format_value, pluralize
from runmanager.tracking.environment.code_hashes import CodeRehasher
from runmanager.tracking.environment.environment import command_line, library_versions
from runmanager.tracking.environment.program_code import commit_of

_MAX_PLAN_ROWS = 20  # of a dry run in a terminal
_WARMUP_EPOCHS = 1  # at least, in each process
_EXPERIMENT = ("script.program", "dataset", "dataset.name", "dataset._target_", "data", "task")
"""Settings that tell one experiment from another; a program other than the built-in job is one of them."""


def plan_sweep(
    program: Program, grid: CellGrid, sweep: SweepPaths | None, *, keeps_pruned: bool = False
) -> list[PlannedRun]:
    """Decide for each cell of `grid` whether to run it, given the runs stored in `sweep`; None is a new sweep.

    Pruned runs are run to their end, unless the command `keeps_pruned` ones, as it prunes.
    Raises `UsageError` under `resume=must` without stored runs.
    """
    storage = grid.storage
    libraries = library_versions() if grid.libraries is None else dict(grid.libraries)
    code_folder = Path(grid.code_folder or Path.cwd())
    now = Environment(**commit_of(code_folder)._asdict(), libraries=libraries)
    stored = read_sweep(sweep, epochs_of=needs_epochs) if sweep else None
    if storage.resume == Resume.MUST and not (stored and stored.runs):
        where = sweep.root if sweep else "a fresh folder"
        raise UsageError(f"`resume=must` must find runs in {where}, got none; leave it out to start.")
    runs = stored.runs if stored else ()
    code_of = CodeRehasher(code_folder).rehash
    rules = PlanRules(
        now,
        resume=storage.resume,
        rerun_changed=storage.rerun_changed,
        keeps_pruned=keeps_pruned,
        code_of=code_of,
        can_continue=program.can_continue,
        rerun_with=storage.rerun_with,
        restore_with=storage.restore_with,
    )
    damaged = (*stored.damaged, *lost_epochs(runs)) if stored else ()
    folder = sweep or SweepPaths(Path(storage.output_root) / "<new>")
    plan = plan_runs(grid.cells, runs, folder, rules, damaged=damaged)
    plan = [replace(each, lacks=lacks) if (lacks := program.lacks(each)) else each for each in plan]
    if grid.extension_obstacle is None or storage.resume == Resume.NEVER:
        return plan
    return with_continuations(plan, runs, now=now, code_of=code_of, obstacle=grid.extension_obstacle)


def with_kept_cells(grid: CellGrid, *, restore: bool) -> CellGrid:
    """Return the grid without the cells that were removed from its sweep, unless they are to be restored.

    Raises `UsageError` where no cell is left, or no stored sweep is named to restore cells of.
    """
    name, option = grid.storage.name, grid.storage.restore_with
    if restore:
        if name is None:
            raise UsageError(f"`{option}` must be given with a sweep's name, got none; a new sweep has no such cells.")
        return grid
    earlier = None if name is None else read_sweep_record(SweepPaths(Path(grid.storage.output_root) / name))
    removed = frozenset(earlier.removed if earlier else ())
    kept = [cell for cell in grid.cells if cell.signature not in removed]
    if not kept:
        raise UsageError(f"Every cell of the command was removed from {name}; `{option}` runs them again.")
    count = len(grid.cells) - len(kept)
    left_out = pluralize(count, "cell was removed and is", "cells were removed and are")
    notes = [f"{left_out} left out; `{option}` runs what was removed again."] if count else []
    return replace(grid, cells=kept, notes=(*grid.notes, *notes))


def named_in_sweep(grid: CellGrid, sweep: SweepPaths | None) -> CellGrid:
    """Return the grid whose new cells are also named by the settings in which they differ from those of their sweep."""
    earlier = read_sweep_record(sweep) if sweep else None
    known = frozenset(earlier.cells) if earlier else frozenset()
    if earlier is None or all(cell.signature in known for cell in grid.cells):
        return grid
    planned = [plan_of(cell) for cell in grid.cells]
    together = add_cells(earlier, planned, SweepCommand((), axes={}, derived=grid.derived))
    differing = independent_settings(settings_of_cells(together), together.derived)
    more = _without_parts_of_groups(differing, grid.axes)
    first = [name for name in more if name in earlier.axes or name.removesuffix(".name") in earlier.axes]
    last = [name for name in more if name not in first]
    cells = [
        replace(cell, name=_longer_name(cell.name, each.settings, first, last))
        for cell, each in zip(grid.cells, planned, strict=True)
    ]
    return replace(grid, cells=cells)


def _without_parts_of_groups(names: Sequence[str], axes: Collection[str]) -> list[str]:
    """Names of settings but for those of the axes, and for the others of a group whose choice is named: of a model."""
    groups = {name.removesuffix(".name") for name in names if name.endswith(".name")}
    return [
        name
        for name in names
        if not any(name == axis or name.startswith(f"{axis}.") for axis in axes)
        and (name.endswith(".name") or name.rpartition(".")[0] not in groups)
    ]


def _longer_name(name: str, settings: Mapping[str, Any], first: Sequence[str], last: Sequence[str]) -> str:
    """A cell's name with further settings before and after its own; as it is if that would be too long."""
    own, _, digits = name.rpartition("-")
    before, after = ({each: settings[each] for each in names if each in settings} for names in (first, last))
    parts = [
        readable_name(before) if before else "",
        "" if own == readable_name({}) else own,
        readable_name(after) if after else "",
    ]
    longer = ",".join(filter(None, parts))
    return f"{longer}-{digits}" if longer and len(longer.encode()) <= MAX_NAME_BYTES else name


def joined(grids: Iterable[CellGrid]) -> CellGrid:
    """Return the cells of several grids of one program as one grid, as the first says the rest of them."""
    first, *others = grids
    axes = {name: list(values) for name, values in first.axes.items()}
    for each in others:
        for name, values in each.axes.items():
            axes[name] = [*axes.get(name, ()), *values]
    return replace(first, cells=[cell for each in (first, *others) for cell in each.cells], axes=axes)


def mixing_notices(grid: CellGrid, sweep: SweepPaths | None) -> list[str]:
    """Say that a command adds another experiment to a sweep: all cells have another program or dataset."""
    earlier = read_sweep_record(sweep) if sweep else None
    if earlier is None or sweep is None:
        return []
    stored, new = settings_of_cells(earlier), [plan_of(cell).settings for cell in grid.cells]
    differing = []
    for name in _EXPERIMENT:
        before, now = ({format_value(each[name]) for each in cells if name in each} for cells in (stored, new))
        if (before or now) and not before & now:
            differing.append(f"{name} is {_listed(now)} and was {_listed(before)}")
    if not differing:
        return []
    return [f"Another experiment joins {sweep.root}: {'; '.join(differing)}. Another `name` keeps them apart."]


def _listed(values: Collection[str]) -> str:
    return ", ".join(sorted(values)) or "not set"


def write_plan(
    sweep: SweepPaths,
    plan: Sequence[PlannedRun],
    grid: CellGrid,
    driver: ProcessIdentity,
    *,
    metric: str | None = None,
    order: str | None = None,
    search: str | None = None,
) -> tuple[list[PlannedRun], SweepRecord]:
    """Write sweep.json, and return it after the runs, whose folders are decided with it.

    `metric` is the one that the command ranks cells by, if it names one; `order` is how its new cells start,
    `search` the method of a search.
    """
    record = write_cells(
        sweep,
        PlannedCells(plan),
        SweepCommand(
            command_line(),
            axes=grid.axes,
            default_device=grid.default_device,
            metric=metric,
            defaults=grid.defaults,
            derived=grid.derived,
            seed_names=grid.seed_names,
            order=order,
            search=search,
        ),
        driver=driver,
    )
    cells = {cell.signature: cell for cell in record.planned}
    return [_with_folder(each, sweep, cells) for each in plan], record


def end_silent_runs(
    plan: Sequence[PlannedRun],
    observer: HeartbeatObserver,
    *,
    apart_from: Collection[str] = (),
    say: Callable[[str], None],
) -> bool:
    """Record the end of runs on other hosts that have no heartbeat; return whether there were any.

    All runs with the state `running` there are observed together, for as long as `observer` needs; a living one is
    recognised within seconds. Runs with a name in `apart_from` are left out.
    """
    host_of = {
        each.paths: each.stored.owner.host
        for each in plan
        if each.action is Action.LEAVE and each.stored is not None and each.stored.owner is not None
        if each.stored.is_running_elsewhere and each.paths.name not in apart_from
    }
    if not host_of:
        return False
    runs = pluralize(len(host_of), "run says", "runs say")
    hosts = ", ".join(dict.fromkeys(host_of.values()))
    say(f"{runs} `running` on {hosts}: watched for a sign of life for up to {observer.limit_seconds:g} s.")
    ended = [end_silent_run(paths, observer) for paths in silent_runs(list(host_of), observer)]
    for record in filter(None, ended):
        say(f"{record.name}: {record.message}; taken over.")
    return any(ended)


def _most_measured_epochs(plan: Sequence[PlannedRun], stored: Sequence[StoredRun]) -> dict[str, int]:
    """Return the most epochs that each run to come can measure, by its signature, where its number is known.

    `stored` are the runs of the sweep. What a run copies of a shorter one is warm-up.
    """
    done = {run.paths.name: len(run.epochs) for run in stored}
    most = {}
    for each in plan:
        if each.is_to_run and each.cell.epochs:
            is_continued = each.continuation is not None and not each.continuation.obstacle
            copied = done.get(each.continuation.run, 0) if is_continued and each.continuation else 0
            most[each.cell.signature] = max(0, each.cell.epochs - copied - _WARMUP_EPOCHS)
    return most


def _with_folder(run: PlannedRun, sweep: SweepPaths, cells: Mapping[str, PlannedCell]) -> PlannedRun:
    """Return the run with its names: the stored ones, or for a new run those of the first driver to plan it."""
    if run.stored is not None or run.action is Action.REFUSE:
        return run
    planned = cells[run.cell.signature]
    return replace(run, cell=replace(run.cell, name=planned.name), paths=sweep.run(planned.run))


def print_plan(
    plan: Sequence[PlannedRun],
    sweep: SweepPaths | None,
    grid: CellGrid,
    console: Console,
    *,
    workers: int,
    order: str | None,
) -> None:
    """Print the plan of a dry run, for `workers` cells at a time; in a terminal the first rows of a long one."""
    from runmanager.app.display.final_summary import plan_table
    from runmanager.results.findings.sample_size import detectable_before_running

    existing = [each for each in plan if each.action is not Action.SKIP]
    cells = add_cells(
        read_sweep_record(sweep) if sweep else None,
        PlannedCells(existing),
        SweepCommand(command_line(), axes=grid.axes, derived=grid.derived, seed_names=grid.seed_names, order=order),
    )
    stored = read_sweep(sweep) if sweep else SweepContents(SweepPaths(Path()), [])
    measured = _most_measured_epochs(existing, stored.runs)
    here = {each.cell.signature for each in existing}
    table = plan_table(
        plan,
        sweep,
        workers=workers,
        to_find=[] if grid.sides else detectable_before_running(stored, cells, measured, cells=here),
        limit=_MAX_PLAN_ROWS if console.is_terminal else None,
        is_duel=bool(grid.sides),
        width=console.width,
    )
    console.print(table, crop=False)


def late_obstacles(grid: CellGrid, launcher: CellLauncher, *, is_single: bool) -> list[str]:
    """Return why the cells of a command cannot be decided late, as the places where an option must be left out."""
    places = {
        "in a single run, which is one cell; use `runmanager sweep`": is_single,
        "in a duel, which compares two sides": bool(grid.sides),
        "where cells take turns, all of which must be known": grid.paired is not None,
        "where no driver waits, as it decides which cell is next": Trait.DETACHED in launcher.traits,
    }
    return [where for where, holds in places.items() if holds]


class LateCells(ABC):
    """Decides which cells a launcher gets next, for one sweep, which it may share with other drivers.

    All that counts is in the sweep's files. `plan` says what is to be done with the cells of a grid, and `metric` is
    the one by which cells are ranked, if the command names one.
    """

    def __init__(
        self, sweep: SweepPaths, plan: Callable[[CellGrid, SweepPaths], list[PlannedRun]], metric: str | None
    ) -> None:
        self._sweep = sweep
        self._plan = plan
        self._metric = metric

    @abstractmethod
    def in_words(self, launcher: CellLauncher) -> list[str]:
        """What is to be done, for the first lines."""

    @abstractmethod
    def expected(self) -> list[str]:
        """The labels of as many cells as may run, where it is known how many; they stand for their lengths."""

    @abstractmethod
    def _next(self, listener: SweepListener) -> Sequence[PlannedRun]:
        """Plan the next runs; none where that needs an end of those that are out, or nothing more is to run."""

    def unwanted(self, begun: Begun, say: Callable[[str], None]) -> Iterable[tuple[int, bool]]:
        """Return the keys of runs that are to end early, and whether at once."""
        return ()

    def jobs(
        self,
        listener: SweepListener,
        launcher: CellLauncher,
        jobs_of: Callable[[Sequence[PlannedRun], int], Iterable[CellJob]],
    ) -> Iterator[CellJob | None]:
        """Yield a job whenever fewer than the launcher's number are out and one is known, else None while any are."""
        queue, out, most = deque[CellJob](), list[int](), launcher.num_handed
        asked_with: list[int] | None = None  # what was out when there was nothing more
        while True:
            out = [key for key in out if not listener.is_over(key)]
            if queue and len(out) < most:
                out.append(queue[0].key)
                yield queue.popleft()
            elif not queue and len(out) < most and out != asked_with:
                if runs := self._next(listener):
                    queue += jobs_of(*listener.add(runs))
                else:
                    asked_with = list(out)
            elif out:
                if Trait.IN_BATCHES in launcher.traits:
                    out = []  # when it asks again, all have ended
                yield None
            else:
                return

    def _planned(self, grid: CellGrid, *, search: str | None = None) -> list[PlannedRun]:
        """Plan cells, and write those that are new into the sweep's file, with the method of a `search`."""
        grid = named_in_sweep(grid, self._sweep)
        plan = self._plan(grid, self._sweep)
        driver = ProcessIdentity.current()
        return write_plan(self._sweep, plan, grid, driver, metric=self._metric, search=search)[0]


def seeds_of(cell: PlannedCell, names: Sequence[str]) -> set[str]:
    """Return the settings of a cell that are seeds, by the usual names and by these globs."""
    return {name for name in cell.settings if is_seed(name, names)}
