"""The cells of a sweep, begun or not, and the settings that tell them apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.records.grid import differing
from runmanager.records.store import StoredRun, SweepContents
from runmanager.records.sweep import SweepRecord
from runmanager.results.columns import BASE_SETTINGS

__all__ = ["Cell", "Cells", "gather_cells"]


@dataclass(frozen=True)
class Cell:
    """A cell of the sweep: its run as stored, or None while it has no folder.

    `own` are its settings, but for those that all cells share where the plan says which these are.
    """

    run: str
    signature: str
    own: Mapping[str, Any]
    stored: StoredRun | None


@dataclass(frozen=True)
class Cells:
    """All cells of a sweep, runs in order of start, then what is pending in the order of the plan."""

    cells: Sequence[Cell]
    shared: Mapping[str, Any]
    varying: Sequence[str]

    def names(self) -> list[str]:
        """The dotted names of all settings that any cell has."""
        names = dict.fromkeys(name for cell in self.cells for name in cell.own)
        return list(dict.fromkeys([*self.shared, *names, "device"]))

    def value(self, cell: Cell, name: str, default: Any = None) -> Any:
        """A cell's value of a setting, `default` where it has none; settings without `device` mean CPU."""
        if name in cell.own:
            return cell.own[name]
        return self.shared.get(name, "cpu" if name == "device" else default)

    @property
    def columns(self) -> list[str]:
        """The settings that a table shows: the base settings, then each other one that varies."""
        return [*BASE_SETTINGS, *(name for name in self.varying if name not in BASE_SETTINGS)]


def gather_cells(sweep: SweepContents, plan: SweepRecord | None) -> Cells:
    """The cells of the stored runs and of the plan. A damaged run's cell is not pending: it is left out."""
    begun = {run.record.signature for run in sweep.runs}
    damaged = {damage.path.name for damage in sweep.damaged}
    planned = {} if plan is None else {cell.signature: cell for cell in plan.planned}
    pending = [cell for cell in planned.values() if cell.signature not in begun and cell.run not in damaged]
    shared: Mapping[str, Any] = {} if plan is None else plan.settings
    if begun <= planned.keys():
        # A signature is its settings, and the plan has already told apart what the cells share.
        runs = [(run, planned[run.record.signature].settings) for run in sweep.runs]
        waiting = [(cell, cell.settings) for cell in pending]
    else:
        runs = [(run, run.record.settings) for run in sweep.runs]
        waiting = [(cell, {**shared, **cell.settings}) for cell in pending]
        shared = {}
    cells = [Cell(run.record.name, run.record.signature, own, run) for run, own in runs]
    cells += [Cell(cell.run, cell.signature, own, None) for cell, own in waiting]
    return Cells(cells, shared, differing([cell.own for cell in cells]))
