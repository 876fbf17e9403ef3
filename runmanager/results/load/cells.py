"""The cells of a sweep, begun or not, and the settings that tell them apart."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from runmanager.records.settings.values import differing_settings
from runmanager.records.storage.reader import Damage, StoredRun
from runmanager.records.sweep.record import PlannedCell, SweepRecord
from runmanager.results.model.columns import BASE_SETTINGS

__all__ = ["Cell", "CellWith", "Cells", "CellsWith", "gather_cells"]


class _Run(Protocol):
    """A run as it was read, whole or in short."""

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> str: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...


_R = TypeVar("_R", bound=_Run)


@dataclass(frozen=True)
class CellWith(Generic[_R]):
    """A cell of the sweep: its run as read, or None while it has no folder.

    `own` are its settings, but for those that all cells share where the plan says which these are.
    """

    run: str
    signature: str
    own: Mapping[str, Any]
    stored: _R | None


@dataclass(frozen=True)
class CellsWith(Generic[_R]):
    """All cells of a sweep, runs in order of start, then what is pending in the order of the plan."""

    cells: Sequence[CellWith[_R]]
    shared: Mapping[str, Any]
    varying: Sequence[str]

    def names(self) -> list[str]:
        """The dotted names of all settings that any cell has."""
        names = dict.fromkeys(name for cell in self.cells for name in cell.own)
        return list(dict.fromkeys([*self.shared, *names, "device"]))

    def value(self, cell: CellWith[_R], name: str, default: Any = None) -> Any:
        """A cell's value of a setting, `default` where it has none; settings without `device` mean CPU."""
        if name in cell.own:
            return cell.own[name]
        return self.shared.get(name, "cpu" if name == "device" else default)

    @property
    def columns(self) -> list[str]:
        """The settings that a table shows: the base settings, then each other one that varies."""
        return [*BASE_SETTINGS, *(name for name in self.varying if name not in BASE_SETTINGS)]


Cell = CellWith[StoredRun]
Cells = CellsWith[StoredRun]


def gather_cells(runs: Sequence[_R], damaged: Iterable[Damage], plan: SweepRecord | None) -> CellsWith[_R]:
    """The cells of the runs and of the plan. The cell of a run in `damaged` is not pending: it is left out."""
    begun = {run.signature for run in runs}
    unread = {damage.path.name for damage in damaged}
    planned = {} if plan is None else {cell.signature: cell for cell in plan.planned}
    pending = [cell for cell in planned.values() if cell.signature not in begun and cell.run not in unread]
    shared: Mapping[str, Any] = {} if plan is None else plan.settings
    if begun <= planned.keys():
        # A signature is its settings, and the plan has already told apart what the cells share.
        own: list[Mapping[str, Any]] = [planned[run.signature].settings for run in runs]
        waiting: list[tuple[PlannedCell, Mapping[str, Any]]] = [(cell, cell.settings) for cell in pending]
    else:
        known: dict[str, Mapping[str, Any]] = {name: {**shared, **cell.settings} for name, cell in planned.items()}
        own = [run.settings if run.signature not in planned else known[run.signature] for run in runs]
        waiting = [(cell, known[cell.signature]) for cell in pending]
        shared = {}
    cells = [CellWith(run.name, run.signature, settings, run) for run, settings in zip(runs, own, strict=True)]
    cells += [CellWith(cell.run, cell.signature, settings, None) for cell, settings in waiting]
    return CellsWith(cells, shared, differing_settings([cell.own for cell in cells]))
