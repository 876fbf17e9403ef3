"""The cells of a sweep, started or pending, and the settings in which they differ."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from runmanager.records.run.status import Status
from runmanager.records.settings.values import differing_settings, hashable
from runmanager.records.storage.reader import Damage, StoredRun
from runmanager.records.sweep.sweep_record import PlannedCell, SweepRecord
from runmanager.results.table_model.columns import BASE_SETTINGS

__all__ = ["Cell", "CellWith", "Cells", "CellsWith", "continued_runs", "gather_cells", "independent_settings"]


class _Run(Protocol):
    """A stored run or its summary."""

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> str: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    @property
    def is_adopted(self) -> bool: ...

    @property
    def world_size(self) -> int: ...


_R = TypeVar("_R", bound=_Run)

_DEVICE = "cpu"
"""The device of a cell without the setting `device`, in the sweep of a training loop."""

_ABSENT = object()
_KINDS = "._target_", ".name"
"""The ends of the settings that say which one of a group a cell has; the last one counts."""

_WORLD_SIZE = "world_size"
_PROCESSES = "processes"
"""The setting that starts the ranks of a cell: it says the same as `world_size`."""


@dataclass(frozen=True)
class CellWith(Generic[_R]):
    """A cell of the sweep; `stored` is its run, or None while it has no folder.

    `own` are its settings, without those in `CellsWith.shared`.
    """

    run: str
    signature: str
    own: Mapping[str, Any]
    stored: _R | None


@dataclass(frozen=True)
class CellsWith(Generic[_R]):
    """All cells of a sweep: the runs in order of start, then pending cells in the order of the plan.

    `shared` are the settings that all cells have in common according to the plan; it is empty without one. `varying`
    are those in which the cells differ, without those that follow from others, which are `following`.
    `default_device` is the device of a cell without that setting, None if it is unknown. With `has_ranks` a run was
    made by several ranks, and each has the setting `world_size`.
    """

    cells: Sequence[CellWith[_R]]
    shared: Mapping[str, Any]
    varying: Sequence[str]
    default_device: str | None = _DEVICE
    has_ranks: bool = False
    following: Sequence[str] = ()

    def names(self) -> list[str]:
        """Return the dotted names of all settings that any cell has."""
        names = dict.fromkeys(name for cell in self.cells for name in cell.own)
        return list(dict.fromkeys([*self.shared, *names, "device"]))

    def value(self, cell: CellWith[_R], name: str, default: Any = None) -> Any:
        """Return a cell's value of a setting, or `default`; that of `device` is `default_device` if it is missing."""
        if name in cell.own:
            return cell.own[name]
        return self.shared.get(name, self.default_device if name == "device" else default)

    @cached_property
    def telling(self) -> list[str]:
        """The settings that vary, without those that follow from which one of a config group a cell has."""
        kinds = {name.rpartition(".")[0]: name for kind in _KINDS for name in self.varying if name.endswith(kind)}
        return [name for name in self.varying if not self._follows(name, kinds.get(name.rpartition(".")[0], name))]

    def _follows(self, name: str, kind: str) -> bool:
        """Whether the value of `kind`, another setting, tells that of `name` in all cells."""
        seen: dict[Hashable, Hashable] = {}
        of_cells = ([hashable(self.value(cell, each, _ABSENT)) for each in (kind, name)] for cell in self.cells)
        return name != kind and all(seen.setdefault(key, value) == value for key, value in of_cells)

    @property
    def columns(self) -> list[str]:
        """The settings that a table shows: the base settings, then the others that vary, and the number of ranks."""
        ranks = [_WORLD_SIZE] if self.has_ranks else []
        return list(dict.fromkeys([*BASE_SETTINGS, *self.varying, *ranks]))

    @property
    def file_columns(self) -> list[str]:
        """The settings that a table for programs has: the `columns`, and those that follow from others."""
        return [*self.columns, *self.following]


Cell = CellWith[StoredRun]
Cells = CellsWith[StoredRun]


def gather_cells(runs: Sequence[_R], damaged: Iterable[Damage], plan: SweepRecord | None) -> CellsWith[_R]:
    """Gather the cells of the runs and of the plan; without those of runs in `damaged`, which are not pending."""
    started = {run.signature for run in runs}
    unread = {damage.path.name for damage in damaged}
    planned = {} if plan is None else {cell.signature: cell for cell in plan.planned}
    left = [] if plan is None else plan.kept
    pending = [cell for cell in left if cell.signature not in started and cell.run not in unread]
    shared: Mapping[str, Any] = {} if plan is None else plan.settings
    if started <= planned.keys():
        # Equal signatures have equal settings, and the plan has already separated the shared ones.
        own: list[Mapping[str, Any]] = [planned[run.signature].settings for run in runs]
        waiting: list[tuple[PlannedCell, Mapping[str, Any]]] = [(cell, cell.settings) for cell in pending]
    else:
        known: dict[str, Mapping[str, Any]] = {name: {**shared, **cell.settings} for name, cell in planned.items()}
        own = [run.settings if run.signature not in planned else known[run.signature] for run in runs]
        waiting = [(cell, known[cell.signature]) for cell in pending]
        shared = {}
    names = set().union(shared, *own)
    has_ranks = any(run.world_size > 1 for run in runs) and not {_WORLD_SIZE, _PROCESSES} & names
    if has_ranks:
        own = [{**settings, _WORLD_SIZE: run.world_size} for run, settings in zip(runs, own, strict=True)]
    cells = [CellWith(run.name, run.signature, settings, run) for run, settings in zip(runs, own, strict=True)]
    cells += [CellWith(cell.run, cell.signature, settings, None) for cell, settings in waiting]
    device = _DEVICE if plan is None or plan.default_device is msgspec.UNSET else plan.default_device
    derived = () if plan is None else plan.derived
    varying = independent_settings([cell.own for cell in cells], derived)
    of_derived = [{name: cell.own[name] for name in derived if name in cell.own} for cell in cells] if derived else []
    following = [name for name in differing_settings(of_derived) if name not in (*varying, *BASE_SETTINGS)]
    return CellsWith(cells, shared, varying, device, has_ranks, following)


def independent_settings(cells: Sequence[Mapping[str, Any]], derived: Collection[str]) -> list[str]:
    """Return the settings in which flat cells differ, without those of `derived` whose values the others tell.

    Where others do not tell them all, those with the fewest values count first: they may tell the rest.
    """
    differing = differing_settings(cells)
    others = [name for name in differing if name not in derived]
    values = {name: [hashable(cell.get(name, _ABSENT)) for cell in cells] for name in differing if name in derived}
    keys = [tuple(hashable(cell.get(name, _ABSENT)) for name in others) for cell in cells] if values else []
    for name, of_cells in sorted(values.items(), key=lambda each: len(set(each[1]))):
        if len(set(keys)) < len(set(zip(keys, of_cells, strict=True))):
            others.append(name)
            keys = [(*key, value) for key, value in zip(keys, of_cells, strict=True)]
    return [name for name in differing if name in others]


class _Continuing(Protocol):
    """A stored run or its summary."""

    @property
    def status(self) -> str: ...

    @property
    def continued_from(self) -> str: ...


def continued_runs(runs: Iterable[_Continuing]) -> frozenset[str]:
    """Return the names of the runs that a finished one with more epochs continues."""
    return frozenset(run.continued_from for run in runs if run.continued_from and run.status == Status.FINISHED)
