"""The plan of a sweep: for each cell what to do and why, given what is stored of its run."""

import datetime
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths, SweepPaths, folder_name, refuse_linked_run
from runmanager.records.run.environment_changes import changed_files, describe_files, is_digest, is_same_code
from runmanager.records.run.run_record import Environment, RunRecord
from runmanager.records.run.status import Reason, Status
from runmanager.records.settings.signature import UNSIGNED, short_signature
from runmanager.records.settings.values import flatten, hashable
from runmanager.records.storage.reader import Damage, StoredRun, read_record, require_epochs
from runmanager.records.sweep.sweep_record import PlannedCell, plan_cell

RERUN_CHANGED = "rerun_changed=true"
"""What a command of the built-in job adds to run finished cells again whose code or versions have changed."""

Code = Mapping[str, str] | None
"""Digests of code files by path, as in a run's `Environment`; None if unknown."""


class Action(StrEnum):
    """What to do with a cell."""

    START = "start"
    RESUME = "resume"
    START_AGAIN = "start again"
    CONTINUE = "continue"  # a new run, which continues a finished one with fewer epochs
    MEASURE = "measure again"  # finished: it takes turns with a run that is not, or calls of its network are timed
    KEEP = "keep"
    LEAVE = "leave"  # another process runs it
    REFUSE = "refuse"  # what is stored of it cannot be read
    SKIP = "skip"  # the machine lacks its device; a prediction: the run checks again


class Resume(StrEnum):
    """What a rerun of a named sweep does with existing runs.

    `auto` runs what is missing; `must` does the same but requires an existing sweep; `never` runs every cell again and
    moves the earlier files into attempts/.
    """

    AUTO = "auto"
    NEVER = "never"
    MUST = "must"


@dataclass(frozen=True, slots=True)  # a sweep has thousands
class Cell:
    """A cell before it is run: its identity, its run's name, its resolved configuration and its words of the command.

    What is known of it beforehand: `device`, the one that it asks for (None if unknown); `epochs`, the planned number
    (0 if unknown), `measure_seconds`, the limit of a measurement after them, and `infers`, the batch sizes with which
    calls of its network are timed then; `processes`, the number of its ranks;
    `unsigned`, the settings that are not part of its identity (see `RunRecord`); `command`, which runs it alone;
    `variables`, the environment variables that it reads; `choices`, those of its config groups (see `RunRecord`);
    `derived`, the settings whose values are interpolations, with
    the elements of lists (`sizes[0]`).
    """

    signature: str
    name: str
    config: Mapping[str, Any]
    overrides: tuple[str, ...]
    device: str | None = None
    epochs: int = 0
    measure_seconds: float = 0.0
    infers: tuple[int, ...] = ()
    processes: int = 1
    unsigned: tuple[str, ...] | None = None
    command: tuple[str, ...] = ()
    variables: Mapping[str, str] | None = None
    choices: Mapping[str, Any] | None = None
    derived: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Continuation:
    """The folder of a finished run whose settings are a cell's but for fewer epochs, and the `obstacle` to that.

    The obstacle completes a sentence about the cell's run; it is empty if there is none.
    """

    run: str
    obstacle: str = ""


@dataclass(frozen=True, slots=True)  # a sweep has thousands
class PlannedRun:
    """A cell with its action, the reason, the paths of its run, and its stored record when this was planned.

    `changes` describes how the present code and versions differ from those of the stored run, `variables` which of the
    environment variables that the cell reads do. `continuation` is the shorter run that a run could continue.
    `is_damaged`: the run is kept, and has lost epochs. `lacks`: what a run that was broken off has not to resume from,
    or why a finished one is not measured.
    """

    cell: Cell
    action: Action
    why: str
    paths: RunPaths
    stored: RunRecord | None = None
    changes: str = ""
    variables: str = ""
    continuation: Continuation | None = None
    is_damaged: bool = False
    lacks: str = ""

    @property
    def name(self) -> str:
        """The name of the run: the stored one, else its cell's."""
        return self.stored.name if self.stored else self.cell.name

    @property
    def why_not_measured(self) -> str:
        """Why new measurements would not match those of its finished run; empty if they would."""
        if self.changes:
            return "`rerun_changed=true` runs it again"
        host = "" if self.stored is None else self.stored.environment.host
        return "" if host in ("", socket.gethostname()) else f"it was made on {host}"

    @property
    def is_to_run(self) -> bool:
        return self.action in (Action.START, Action.RESUME, Action.START_AGAIN, Action.CONTINUE, Action.MEASURE)

    def pending_record(self) -> RunRecord:
        """Return the run's record as it stands before its process has written any."""
        return RunRecord(
            name=self.name,
            signature=self.cell.signature,
            status=Status.PENDING,
            config=dict(self.cell.config),
            started_at=datetime.datetime.now(datetime.UTC).isoformat(),
            unsigned=self.cell.unsigned,
            cell_command=self.cell.command or msgspec.UNSET,
            variables=dict(self.cell.variables) if self.cell.variables else msgspec.UNSET,
            choices=dict(self.cell.choices) if self.cell.choices else msgspec.UNSET,
        )


class PlannedCells(Iterable[PlannedCell]):
    """The cells of a plan for sweep.json, created one at a time, as the settings of all take much memory."""

    def __init__(self, plan: Sequence[PlannedRun]) -> None:
        self._plan = plan

    def __iter__(self) -> Iterator[PlannedCell]:
        return (plan_of(replace(each.cell, name=each.name), each.paths.name) for each in self._plan)


def plan_of(cell: Cell, run: str = "") -> PlannedCell:
    """Return the cell as sweep.json has it; `run` is the name of its run's folder, by default that of a new one."""
    unsigned = UNSIGNED if cell.unsigned is None else cell.unsigned
    folder = run or folder_name(cell.name)
    return plan_cell(cell.signature, folder, cell.config, unsigned=unsigned, choices=cell.choices, name=cell.name)


@dataclass(frozen=True)
class PlanRules:
    """What a command does with stored runs.

    `now` has the commit and library versions of a new run, and `code_of` returns the present digests of a run's code
    files. A finished run with other ones is reported, and run again if `rerun_changed`. A pruned run is run to its end,
    unless the command `keeps_pruned` ones. `can_continue` says whether a killed run continues from what is in its
    folder. `rerun_with` is what a command adds for `rerun_changed`, `restore_with` what it adds for cells that were
    removed.
    """

    now: Environment
    resume: Resume = Resume.AUTO
    rerun_changed: bool = False
    keeps_pruned: bool = False
    code_of: Callable[[Code], Code] = lambda _: None
    can_continue: Callable[[RunPaths], bool] = lambda run: run.checkpoint.exists()
    rerun_with: str = RERUN_CHANGED
    restore_with: str = "--restore"


def plan_runs(
    cells: Sequence[Cell],
    stored: Sequence[StoredRun],
    sweep: SweepPaths,
    rules: PlanRules,
    *,
    damaged: Iterable[Damage] = (),
) -> list[PlannedRun]:
    """Plan each distinct cell, in order. Runs are found by signature, never by the names of their folders.

    `damaged` are folders that cannot be read. Their names still end with the signature: such a cell is refused, and the
    folder's files stay. So do those of a finished run that has lost epochs, which is kept.
    """
    damage_of = {each.path.name: each for each in damaged}
    unreadable = {name.rpartition("-")[2]: each for name, each in damage_of.items()}
    found = {run.record.signature: run for run in stored}
    distinct = {cell.signature: cell for cell in reversed(cells)}
    ordered = [distinct.pop(cell.signature) for cell in cells if cell.signature in distinct]
    return [
        _with_damage(_plan(cell, run, rules), damage_of.get(run.folder), rules.restore_with)
        if (run := found.get(cell.signature)) is not None
        else _plan_new(cell, unreadable.get(short_signature(cell.signature)), sweep, rules.restore_with)
        for cell in ordered
    ]


def _plan_new(cell: Cell, damage: Damage | None, sweep: SweepPaths, restore_with: str) -> PlannedRun:
    if damage is None:
        return PlannedRun(cell, Action.START, "new", sweep.run(folder_name(cell.name)))
    return PlannedRun(cell, Action.REFUSE, _with_way_out(damage, restore_with), sweep.run(damage.path.name))


def _with_damage(planned: PlannedRun, damage: Damage | None, restore_with: str) -> PlannedRun:
    if damage is None or planned.action is not Action.KEEP:
        return planned
    return replace(planned, why=f"{planned.why}; {_with_way_out(damage, restore_with)}", is_damaged=True)


def _with_way_out(damage: Damage, restore_with: str) -> str:
    said = damage.message.removesuffix(".")
    if damage.path.is_symlink():
        return f"{said}; move it away to run the cell again"
    return f"{said}; move its folder away to run the cell again, or `runmanager rm` it and add `{restore_with}`"


def lost_epochs(runs: Iterable[StoredRun]) -> Iterator[Damage]:
    """Yield the damage of finished runs that have fewer epochs than they finished with."""
    for run in runs:
        try:
            require_epochs(run.paths, run.record)
        except RecordError as error:
            yield Damage(run.paths.root, str(error))


def needs_epochs(record: RunRecord) -> bool:
    """Whether the plan of a stored run needs its epochs, which else are not read."""
    return not record.is_complete and record.status is not Status.SKIPPED


def _plan(cell: Cell, run: StoredRun, rules: PlanRules) -> PlannedRun:
    then = run.record.environment
    code = rules.code_of(then.code)
    today = msgspec.structs.replace(rules.now, code=None if code is None else dict(code))
    changes = changes_since(then, today)
    is_done = run.is_complete or (rules.keeps_pruned and run.record.reason is Reason.PRUNED)
    action, why = _decide(run, changes, rules, is_done=is_done)
    if action is Action.KEEP and changes:
        why += f"; {rules.rerun_with} runs it again"
    action, variables = _with_variables(cell, run.record, action)
    why += f"; {variables}" if variables else ""
    if action in (Action.KEEP, Action.RESUME) and not changes and is_same_code(then, today) is None:
        why += "; whether its code is the same is not known"
    planned = PlannedRun(cell, action, why, run.paths, run.record, changes, variables)
    return _with_inference(planned) if action is Action.KEEP and run.is_complete else planned


def _with_inference(planned: PlannedRun) -> PlannedRun:
    """Plan to time calls of a finished run's network with the batch sizes that are not known yet."""
    missing = planned.stored.measurements.sizes_not_timed(planned.cell.infers) if planned.stored else ()
    if not missing:
        return planned
    has_weights = planned.paths.checkpoint.exists()
    obstacle = planned.why_not_measured or ("" if has_weights else "it left no checkpoint")
    which = f"inference with batches of {', '.join(map(str, missing))}"
    if obstacle:
        return replace(planned, lacks=f"{which} is not measured: {obstacle}")
    return replace(planned, action=Action.MEASURE, why=f"{planned.why}; {which} is measured")


def stored_record(run: PlannedRun) -> RunRecord | None:
    """Return the stored record of a run; None if it is missing or unreadable."""
    try:
        refuse_linked_run(run.paths)
        return read_record(run.paths).observed()
    except RecordError:
        return None


def is_still_to_run(planned: PlannedRun, now: RunRecord | None) -> bool:
    """Whether this driver should still run a cell, given its record `now`: another driver may have been first."""
    if now is None:
        return True
    if now.status is Status.RUNNING:
        return False
    before = 0 if planned.stored is None else planned.stored.attempt
    return now.attempt == before or was_cut_short(now)


def was_cut_short(record: RunRecord) -> bool:
    """Whether a run ended because its driver did, so that another driver of the sweep should resume it."""
    return record.status is Status.CRASHED or (record.status is Status.KILLED and record.reason is Reason.INTERRUPTED)


def _with_variables(cell: Cell, record: RunRecord, action: Action) -> tuple[Action, str]:
    """Do not keep a run whose environment variables have other values now; a changed secret is only named."""
    now, then = cell.variables or {}, record.variables or {}
    changed = [name for name in {**then, **now} if now.get(name) != then.get(name)]
    if action is not Action.KEEP or not changed:
        return action, ""
    secrets = [name for name in changed if is_digest(now.get(name, "")) or is_digest(then.get(name, ""))]
    values = [name for name in changed if name not in secrets]
    parts = [f"the environment variable {name} {_changed(name, now, then)} now" for name in values]
    parts += [f"the secret {name} has changed" for name in secrets]
    return Action.START_AGAIN if values else action, "; ".join(parts)


def _changed(name: str, now: Mapping[str, str], then: Mapping[str, str]) -> str:
    if name not in now:
        return "is not set"
    return "has another value" if name in then else "is set"


def _decide(run: StoredRun, changes: str, rules: PlanRules, *, is_done: bool) -> tuple[Action, str]:
    record = run.record
    state = f"{record.status}" + (f" ({record.reason})" if record.reason else "")
    if record.status is Status.RUNNING:
        return Action.LEAVE, _running_text(record)
    if rules.resume is Resume.NEVER:
        return Action.START_AGAIN, f"{state}; resume=never"
    match record.status:
        case _ if is_done and changes and rules.rerun_changed:
            return Action.START_AGAIN, f"finished with other versions: {changes}"
        case _ if is_done:
            return Action.KEEP, state + (f", with other versions: {changes}" if changes else "")
        case _ if run.is_damaged:
            return Action.START_AGAIN, f"{state}; its epochs cannot be read"
        case _ if record.is_resumable and rules.can_continue(run.paths):
            why = f"{state} after epoch {run.epochs[-1].epoch if run.epochs else 0}"
            if not run.epochs and not run.paths.checkpoint.exists():
                why = f"{state}; its folder is kept"
            return Action.RESUME, why + (f", made with other versions: {changes}" if changes else "")
        case Status.SKIPPED:
            return Action.START, f"{state}; tried again"
        case _:
            return Action.START_AGAIN, state


def _running_text(record: RunRecord) -> str:
    where = f"running in process {record.owner.pid if record.owner else '?'}"
    if record.owner is None or not record.is_running_elsewhere:
        return where
    return f"{where} on {record.owner.host}, by its own record; taken over if it shows no sign of life"


def changes_since(then: Environment, now: Environment) -> str:
    """Describe the differences between two environments that could change results: code and library versions."""
    changes = []
    if then.commit != now.commit and then.commit and now.commit:
        changes.append(f"commit {then.commit[:8]}, now {now.commit[:8]}")
    if then.commit_clean is not now.commit_clean and None not in (then.commit_clean, now.commit_clean):
        changes.append("uncommitted changes now" if then.commit_clean else "uncommitted changes then")
    if files := changed_files((then, now)):
        changes.append(f"code changed ({describe_files(files)})")
    for name, version in now.libraries.items():
        earlier = then.libraries.get(name)
        if earlier is not None and earlier != version:
            changes.append(f"{name} {earlier}, now {version}")
    return "; ".join(changes)


_ELEMENT = "["  # begins the index in the name of a list's element


def derived_settings(cells: Sequence[Cell], axes: Collection[str] = ()) -> frozenset[str]:
    """Return the settings that are interpolations in all cells that have them, without the `axes` of the command.

    A list with interpolations is one of them if all else in it is the same in all cells.
    """
    lists = frozenset(name.partition(_ELEMENT)[0] for cell in cells for name in cell.derived if _ELEMENT in name)
    found = {*lists, *(name for cell in cells for name in cell.derived if _ELEMENT not in name)}.difference(axes)
    for cell in cells:
        if given := found - cell.derived - {name.partition(_ELEMENT)[0] for name in cell.derived}:
            found -= given & flatten(cell.config).keys()
    return frozenset(name for name in found if name not in lists or _has_one_rest(name, cells))


def _has_one_rest(name: str, cells: Sequence[Cell]) -> bool:
    """Whether a list has the same values in all cells but for those that are interpolations."""
    settings = ((flatten(cell.config), cell.derived) for cell in cells)
    return len({hashable(_rest(flat[name], name, derived)) for flat, derived in settings if name in flat}) <= 1


def _rest(value: Any, name: str, derived: Collection[str]) -> Any:
    if name in derived:
        return None
    if isinstance(value, list):
        return [_rest(each, f"{name}{_ELEMENT}{index}]", derived) for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        return {key: _rest(each, f"{name}.{key}", derived) for key, each in value.items()}
    return value
