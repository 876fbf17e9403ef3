"""The cells of a sweep, started or pending, and the settings in which they differ."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from runmanager.records.settings.grid import seeds_among
from runmanager.records.settings.values import differing_settings, hashable, package_of
from runmanager.records.storage.reader import Damage, StoredRun
from runmanager.records.sweep.sweep_record import PlannedCell, SweepRecord
from runmanager.results.table_model.columns import BASE_SETTINGS


class _Run(Protocol):
    """A stored run or its summary."""

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> str: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    @property
    def choices(self) -> Mapping[str, Any]: ...

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

_PROGRAM = "script.program"
"""What every cell of a script has."""

_WORLD_SIZE = "world_size"
_PROCESSES = "processes"
"""The setting that starts the ranks of a cell: it says the same as `world_size`."""


@dataclass(frozen=True)
class CellWith(Generic[_R]):
    """A cell of the sweep; `stored` is its run, or None while it has no folder.

    `own` are its choices of config groups and its settings, without those in `CellsWith.shared`.
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

    `choices` are the names of config groups whose choices some cells have, as if they were settings. They never tell
    cells apart, so that they are not among `varying`: the settings of their files do. `axes` are the settings and the
    groups that commands have varied. `seeds` are the settings that are seeds.
    """

    cells: Sequence[CellWith[_R]]
    shared: Mapping[str, Any]
    varying: Sequence[str]
    default_device: str | None = _DEVICE
    has_ranks: bool = False
    following: Sequence[str] = ()
    choices: Sequence[str] = ()
    axes: Collection[str] = ()
    seeds: Sequence[str] = ()

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
        """The settings that vary; in place of those that follow from which one of a config group a cell has, that."""
        return list(dict.fromkeys(map(self.told_by, self.varying)))

    def told_by(self, name: str) -> str:
        """Return what tells the value of a setting in all cells: the choice or the kind of its group, or itself."""
        group = name.rpartition(".")[0]
        kinds = [f"{group}{kind}" for kind in _KINDS if f"{group}{kind}" in self.varying]
        tellers = [*(each for each in self.leading_choices if self._may_tell(each, name)), *kinds[-1:]]
        return next((each for each in tellers if self._follows(name, each)), name)

    @cached_property
    def leading_choices(self) -> list[str]:
        """The choices that vary and do not follow from that of another group, those of the innermost groups first."""
        leading: list[str] = []
        by_depth = sorted(self.varying_choices, key=lambda each: (each not in self.axes, self._depth(each)))
        for choice in by_depth:
            tellers = [] if choice in self.axes else [each for each in leading if self._may_tell(each, choice)]
            if not any(self._follows(choice, each) for each in tellers):
                leading.append(choice)
        return sorted(leading, key=self._depth, reverse=True)

    @cached_property
    def varying_choices(self) -> list[str]:
        """The config groups whose choices differ between cells."""
        return [name for name in self.choices if self.num_values(name) > 1]

    def num_values(self, name: str) -> int:
        """Return the number of different values of a setting or a choice."""
        return len(set(self._values(name)))

    def members(self, choice: str) -> list[str]:
        """Return the varying settings that are compared together with a choice: those that it tells or may tell.

        Those below its group are, but for seeds, for what a group further inside tells, and for an axis of its own in
        all cells.
        """
        return [name for name in self.varying if name not in self.seeds and self._is_member(name, choice)]

    def _is_member(self, name: str, choice: str) -> bool:
        teller = self.told_by(name)
        if teller in self.choices:
            return teller == choice
        is_own_axis = name in self.axes and not any(value is _ABSENT for value in self._values(name))
        return not is_own_axis and self._is_below(name, self._packages.get(choice, ""))

    def _may_tell(self, choice: str, name: str) -> bool:
        """Whether the files of a group may give this setting, or this choice of another group."""
        package = self._packages[choice]
        return self._is_below(package_of(name), package) if package else name not in self.axes

    @staticmethod
    def _is_below(name: str, package: str) -> bool:
        return bool(package) and (name == package or name.startswith(f"{package}."))

    def _depth(self, choice: str) -> int:
        return len(self._packages[choice].split(".")) if self._packages[choice] else 0

    @cached_property
    def _packages(self) -> dict[str, str]:
        """The name below which each group has its settings; empty for one that has them elsewhere, as presets do."""
        settings = [name for name in self.names() if name not in self.choices]
        packages = {choice: package_of(choice) for choice in self.choices}
        return {
            choice: package if any(self._is_below(name, package) for name in settings) else ""
            for choice, package in packages.items()
        }

    def _follows(self, name: str, teller: str) -> bool:
        """Whether the value of `teller`, another setting, tells that of `name` in all cells."""
        seen: dict[Hashable, Hashable] = {}
        pairs = zip(self._values(teller), self._values(name), strict=True)
        return name != teller and all(seen.setdefault(key, value) == value for key, value in pairs)

    def _values(self, name: str) -> list[Hashable]:
        """The values of a setting, cell by cell."""
        if name not in self._columns:
            self._columns[name] = [hashable(self.value(cell, name, _ABSENT)) for cell in self.cells]
        return self._columns[name]

    @cached_property
    def _columns(self) -> dict[str, list[Hashable]]:
        return {}

    @property
    def columns(self) -> list[str]:
        """The settings that a table shows: the base settings, then the others that vary, and the number of ranks."""
        ranks = [_WORLD_SIZE] if self.has_ranks else []
        leading = [name for name in self.choices if name in self.leading_choices]
        return list(dict.fromkeys([*BASE_SETTINGS, *leading, *self.varying, *ranks]))

    @property
    def file_columns(self) -> list[str]:
        """The settings that a table for programs has: the `columns`, and those that follow from others."""
        return list(dict.fromkeys([*self.columns, *self.varying_choices, *self.following]))


Cell = CellWith[StoredRun]
Cells = CellsWith[StoredRun]


def gather_cells(runs: Sequence[_R], damaged: Iterable[Damage], plan: SweepRecord | None) -> CellsWith[_R]:
    """Gather the cells of the runs and of the plan; without those of runs in `damaged`, which are not pending."""
    started = {run.signature for run in runs}
    unread = {damage.path.name for damage in damaged}
    planned = {} if plan is None else {cell.signature: cell for cell in plan.planned}
    left = [] if plan is None else plan.kept
    pending = [cell for cell in left if cell.signature not in started and cell.run not in unread]
    shared: Mapping[str, Any] = {} if plan is None else {**(plan.choices or {}), **plan.settings}
    if started <= planned.keys():
        # Equal signatures have equal settings, and the plan has already separated the shared ones.
        own: list[Mapping[str, Any]] = [planned[run.signature].choices_and_settings for run in runs]
        waiting: list[tuple[PlannedCell, Mapping[str, Any]]] = [(cell, cell.choices_and_settings) for cell in pending]
    else:
        known: dict[str, Mapping[str, Any]] = {
            name: {**shared, **cell.choices_and_settings} for name, cell in planned.items()
        }
        own = [known.get(run.signature) or {**run.choices, **run.settings} for run in runs]
        waiting = [(cell, known[cell.signature]) for cell in pending]
        shared = {}
    axes: Collection[str] = () if plan is None else plan.axes
    if renamed := _names_in_tables(shared, [*own, *(settings for _, settings in waiting)]):
        shared, own = _renamed(shared, renamed), [_renamed(settings, renamed) for settings in own]
        waiting = [(cell, _renamed(settings, renamed)) for cell, settings in waiting]
        axes = [renamed.get(name, name) for name in axes]
    names = set().union(shared, *own, *(settings for _, settings in waiting))
    has_ranks = any(run.world_size > 1 for run in runs) and not {_WORLD_SIZE, _PROCESSES} & names
    if has_ranks:
        own = [{**settings, _WORLD_SIZE: run.world_size} for run, settings in zip(runs, own, strict=True)]
    cells = [CellWith(run.name, run.signature, settings, run) for run, settings in zip(runs, own, strict=True)]
    cells += [CellWith(cell.name, cell.signature, settings, None) for cell, settings in waiting]
    device = _DEVICE if plan is None or plan.default_device is msgspec.UNSET else plan.default_device
    derived = () if plan is None else plan.derived
    choices = _names_of_choices(runs, plan)
    varying = independent_settings([cell.own for cell in cells], derived, choices=choices)
    of_derived = [{name: cell.own[name] for name in derived if name in cell.own} for cell in cells] if derived else []
    following = [name for name in differing_settings(of_derived) if name not in (*varying, *BASE_SETTINGS)]
    seeds = seeds_among(names.difference(choices), () if plan is None else plan.seed_names)
    return CellsWith(cells, shared, varying, device, has_ranks, following, choices, axes, seeds)


def _names_in_tables(shared: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The settings of a script that tables call by another name: `batch_size` for `batch-size`, as other programs do.

    Not where a cell has a setting of that name too.
    """
    if _PROGRAM not in shared and not any(_PROGRAM in cell for cell in cells[:1]):
        return {}
    names = {name: name.replace("-", "_") for name in set(shared).union(*cells) if "-" in name}
    return {
        name: other
        for name, other in names.items()
        if not any((name in cell or name in shared) and (other in cell or other in shared) for cell in cells)
    }


def _renamed(settings: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    return {names.get(name, name): value for name, value in settings.items()}


def _names_of_choices(runs: Sequence[_Run], plan: SweepRecord | None) -> list[str]:
    of_plan = [] if plan is None else [plan.choices or {}, *(cell.choices for cell in plan.planned if cell.choices)]
    return list(dict.fromkeys(name for choices in (*of_plan, *(run.choices for run in runs)) for name in choices))


def independent_settings(
    cells: Sequence[Mapping[str, Any]], derived: Collection[str], *, choices: Collection[str] = ()
) -> list[str]:
    """Return the settings in which flat cells differ, without those of `derived` whose values the others tell.

    `choices`, those of config groups, are no settings.
    Where others do not tell them all, those with the fewest values count first: they may tell the rest.
    """
    differing = [name for name in differing_settings(cells) if name not in choices]
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
    def is_complete(self) -> bool: ...

    @property
    def continued_from(self) -> str: ...


def continued_runs(runs: Iterable[_Continuing]) -> frozenset[str]:
    """Return the names of the runs that a finished one with more epochs continues."""
    return frozenset(run.continued_from for run in runs if run.continued_from and run.is_complete)
