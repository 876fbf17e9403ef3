"""The folder that TensorBoard is shown of a sweep: its runs under short names."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary

from runmanager.errors import RecordError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.settings.naming import short_names
from runmanager.records.storage.reader import read_record, run_names
from runmanager.records.sweep.record import PlannedCell, SweepRecord, read_sweep_record
from runmanager.tracking.tensorboard.event_writer import EventWriter
from runmanager.tracking.tensorboard.hparams import mixed, session_start

__all__ = ["ServedRuns"]

_BESIDE = "events.out.tfevents.0000000000.beside"
"""A file beside the link to a run's own. It is read first, and of two equal tags TensorBoard keeps the first."""


class ServedRuns:
    """Links to the event files of a sweep's runs, a folder each, which `refresh` keeps up to date.

    The files stay where they are and are followed while they grow; those of earlier attempts are left out.
    """

    def __init__(self, sweep: SweepPaths, folder: Path) -> None:
        """`folder` is empty and ours; TensorBoard reads `root`, in it, and says its name."""
        self.root = folder / sweep.name
        self.root.mkdir()
        self._making = folder / ".making"
        self._sweep = sweep
        self._plan_seen: tuple[int, int] | None = None
        self._cells: dict[str, Mapping[str, Any]] = {}
        self._names: dict[str, str] = {}
        self._linked: dict[str, Path] = {}

    @property
    def cells(self) -> Sequence[Mapping[str, Any]]:
        """The settings of all cells, begun or not, as the last `refresh` knew them."""
        return list(self._cells.values())

    @property
    def has_begun(self) -> bool:
        """Whether any run is shown."""
        return bool(self._linked)

    def refresh(self) -> None:
        """Link what has begun since, and name all anew where the sweep has new cells that call for it.

        Raises `OSError`, and `RecordError` where the sweep's record cannot be read; the next call may mend it.
        """
        if self._read_cells():
            self._names = short_names(self._cells, lone=self._sweep.name)
        found = {name: events for run, name in self._names.items() if (events := self._events(run, name)) is not None}
        for name in self._linked.keys() - found.keys():
            shutil.rmtree(self.root / name)
            del self._linked[name]
        fresh = {run: name for run, name in self._names.items() if name in found.keys() - self._linked.keys()}
        if not fresh:
            return
        texts = mixed(self.cells)
        for run, name in fresh.items():
            self._link(name, found[name], self._beside(run, texts))

    def _read_cells(self) -> bool:
        """Learn the settings of all cells, begun or not; whether there are others than before."""
        known = len(self._cells)
        path = self._sweep.record
        seen = (path.stat().st_mtime_ns, path.stat().st_size) if path.exists() else None
        if is_fresh := seen is not None and seen != self._plan_seen:
            plan = read_sweep_record(self._sweep)
            self._cells |= {} if plan is None else {cell.run: _axes_first(plan, cell) for cell in plan.planned}
            self._plan_seen = seen
        for run in run_names(self._sweep):
            if run not in self._cells:  # made under an older plan, or under none
                try:
                    self._cells[run] = read_record(self._sweep.run(run)).settings
                except RecordError:
                    continue
        return is_fresh or len(self._cells) > known

    def _events(self, run: str, name: str) -> Path | None:
        """The run's event file, looked for only where it is not linked yet, or has gone."""
        linked = self._linked.get(name)
        if linked is not None and linked.parent.name == run and linked.exists():
            return linked
        if (events := self._sweep.run(run).events) is not None:
            self._linked.pop(name, None)
        return events

    def _beside(self, run: str, texts: Sequence[str]) -> Summary | None:
        """What TensorBoard must read before the run's own file: settings that have to be text in all runs."""
        settings = self._cells[run]
        as_text = {name: str(settings[name]) for name in texts if settings.get(name) is not None}
        return session_start({**settings, **as_text}) if as_text else None

    def _link(self, name: str, events: Path, beside: Summary | None) -> None:
        """Show a run's file under `name`; the folder appears whole."""
        shutil.rmtree(self._making, ignore_errors=True)
        shutil.rmtree(self.root / name, ignore_errors=True)  # of an attempt that has been put aside
        self._making.mkdir()
        if beside is not None:
            writer = EventWriter(self._making, self._making / _BESIDE)
            writer.summary(beside)
            writer.close()
        (self._making / events.name).symlink_to(events.resolve())
        self._making.rename(self.root / name)
        self._linked[name] = events


def _axes_first(plan: SweepRecord, cell: PlannedCell) -> dict[str, Any]:
    """A cell's settings in the order in which people know them: names and columns keep it."""
    whole = {**plan.settings, **cell.settings}
    return {**{name: whole[name] for name in plan.axes if name in whole}, **whole}
