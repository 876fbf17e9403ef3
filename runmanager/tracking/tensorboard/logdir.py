"""Log directory that shows a sweep in TensorBoard: links to its runs, which come and go in one step."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary

from runmanager.errors import RecordError
from runmanager.records.files.paths import SweepPaths, files_below
from runmanager.records.settings.signature import short_names
from runmanager.records.storage.reader import read_record, run_names
from runmanager.records.sweep.sweep_record import PlannedCell, SweepRecord, read_sweep_record
from runmanager.results.tfevents.reader import is_event_file
from runmanager.tracking.tensorboard.event_writer import EventWriter
from runmanager.tracking.tensorboard.hparams import mixed_type_settings, session_start

_OVERRIDES = "events.out.tfevents.0000000000.overrides"
"""A file next to the link to a run's own. TensorBoard reads it first, and of two equal tags uses the first one."""

_ATTEMPTS = ("attempts",)


class SweepLogdir:
    """Links to the event files of a sweep's runs, in one folder per run, updated by `refresh`.

    The linked files may still grow. Those of a program lie anywhere below its run's folder, apart from the files of
    earlier attempts.
    """

    def __init__(self, sweep: SweepPaths, folder: Path) -> None:
        """`folder` must be empty and is for this object alone; TensorBoard reads `root` in it and shows its name."""
        self.served = ServedFolder(folder, sweep.name)
        self.root = self.served.root
        self._sweep = sweep
        self._plan_version: tuple[int, int] | None = None
        self._cells: dict[str, Mapping[str, Any]] = {}
        self._names: dict[str, str] = {}
        self._linked: dict[str, tuple[str, list[Path]]] = {}  # the run's folder and its files, by short name
        self._adopted: set[str] = set()
        self._searched: set[str] = set()  # runs that had ended before they were searched

    @property
    def cells(self) -> Sequence[Mapping[str, Any]]:
        """The settings of all cells, started or not, at the last `refresh`."""
        return list(self._cells.values())

    @property
    def has_begun(self) -> bool:
        """Whether any run is linked."""
        return bool(self._linked)

    def refresh(self) -> None:
        """Link runs that have started since, and rename all if new cells require longer names.

        Raises `OSError`, and `RecordError` if the sweep's record is unreadable; the next call may succeed.
        """
        if self._read_cells():
            self._names = short_names(self._cells, lone=self._sweep.name)
        found = {name: events for run, name in self._names.items() if (events := self._events(run, name))}
        new = {run: name for run, name in self._names.items() if name in found and name not in self._linked}
        text_settings = mixed_type_settings(self.cells) if new else ()
        for run, name in new.items():
            self._link(run, name, found[name], self._overrides(run, text_settings))
        for name in self._linked.keys() - found.keys():  # last, so that renamed runs are always shown
            self.served.remove(name)
            del self._linked[name]

    def _read_cells(self) -> bool:
        """Read the settings of all cells, started or not; return whether they changed."""
        known = len(self._cells)
        path = self._sweep.record
        version = (path.stat().st_mtime_ns, path.stat().st_size) if path.exists() else None
        if is_new := version is not None and version != self._plan_version:
            plan = read_sweep_record(self._sweep)
            self._cells |= {} if plan is None else {cell.run: _axes_first(plan, cell) for cell in plan.kept}
            self._plan_version = version
        for run in run_names(self._sweep):
            if run not in self._cells:  # from an older plan, or from none
                try:
                    self._cells[run] = read_record(self._sweep.run(run)).settings
                except RecordError:
                    continue
        return is_new or len(self._cells) > known

    def _events(self, run: str, name: str) -> list[Path]:
        """Find the run's event files; searches only while it runs, or if they are not linked yet or have gone."""
        linked_run, linked = self._linked.get(name, ("", []))
        is_linked = linked_run == run and linked[0].exists()
        if is_linked and run in self._searched:
            return linked
        paths = self._sweep.run(run)
        if not paths.heartbeat.exists():
            self._searched.add(run)
        own = _regular(files_below(paths.root, is_event_file, [], without=_ATTEMPTS))
        events = own or self._original_events(run)
        if events and not (is_linked and events == linked):
            self._linked.pop(name, None)
        return events

    def _original_events(self, run: str) -> list[Path]:
        """Find the event files of an adopted run in its original folder; empty for any other run."""
        try:
            original = read_record(self._sweep.run(run)).adopted
        except RecordError:
            return []
        if not original:
            return []
        self._adopted.add(run)
        return _regular(files_below(Path(original), is_event_file, []))

    def _overrides(self, run: str, text_settings: Sequence[str]) -> Summary | None:
        """Build the summary to read before the run's own file: settings that must be text in all runs.

        The files of an adopted run may lack its settings, so it has all of them.
        """
        settings = self._cells[run]
        as_text = {name: str(settings[name]) for name in text_settings if settings.get(name) is not None}
        return session_start({**settings, **as_text}) if as_text or run in self._adopted else None

    def _link(self, run: str, name: str, events: list[Path], overrides: Summary | None) -> None:
        """Link a run's files under `name`, those of several folders in folders; they appear in one step."""
        parents = [each.parent for each in events]
        top = self._sweep.run(run).root if run not in self._adopted else os.path.commonpath(parents)
        with self.served.replacing(name) as folder:
            if overrides is not None:
                writer = EventWriter(folder, folder / _OVERRIDES)
                writer.summary(overrides)
                writer.close()
            for each in events:
                link = folder / each.relative_to(top)
                if link.parent != folder:
                    link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(each.absolute())
        self._linked[name] = run, events


def _regular(paths: Sequence[Path]) -> list[Path]:
    """Leave out pipes, which would block, and links, which may lead out of the run's folder."""
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def _axes_first(plan: SweepRecord, cell: PlannedCell) -> dict[str, Any]:
    """Return all settings of a cell with the sweep's axes first, as in run names and columns."""
    settings = {**(plan.choices or {}), **plan.settings, **cell.choices_and_settings}
    return {**{name: settings[name] for name in plan.axes if name in settings}, **settings}


class ServedFolder:
    """Folders of event files below `root`, each of them a run of TensorBoard by its name.

    TensorBoard may read at any time, so nothing is written or deleted below `root`: files are moved in when they are
    complete, and folders are moved out before they are deleted.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """`folder` must be empty and is for this object alone; `root` is `name` in it, which TensorBoard shows."""
        self.root = folder / name
        self.root.mkdir()
        self._staging = folder / ".staging"
        self._removed = folder / ".removed"

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """Yield an empty folder to fill. At the end, its files are served under `name` in place of those before.

        A folder that is served stays, with the new files in it first: TensorBoard continues with a file that is added,
        but may take a folder that was gone for a moment for deleted.
        """
        if self._staging.exists():  # of a call that failed
            shutil.rmtree(self._staging)
        self._staging.mkdir()
        yield self._staging
        target = self.root / name
        if not target.exists():
            os.rename(self._staging, target)
            return
        new = _files_below(self._staging)
        old = [each for each in _files_below(target) if each not in new]
        for each in new:
            (target / each).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._staging / each, target / each)
        for each in old:
            (target / each).unlink()
        shutil.rmtree(self._staging)

    def remove(self, name: str) -> None:
        """Stop serving what is under `name`."""
        if self._removed.exists():  # of a call that failed
            shutil.rmtree(self._removed)
        os.rename(self.root / name, self._removed)
        shutil.rmtree(self._removed)


def _files_below(folder: Path) -> list[str]:
    return [os.path.relpath(f"{parent}/{name}", folder) for parent, _, names in os.walk(folder) for name in names]
