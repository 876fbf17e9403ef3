"""Log directory that shows a sweep in TensorBoard: links to its runs, which come and go in one step."""

import os
import shutil
import struct
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING

from runmanager.errors import RecordError
from runmanager.records.files.paths import SweepPaths, files_below
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.settings.signature import short_names
from runmanager.records.storage.reader import StoredRun, read_record, read_run, read_sweep, run_names
from runmanager.records.sweep.sweep_record import PlannedCell, SweepRecord, read_sweep_record
from runmanager.results.load.run_summary import metric_names, unit_names
from runmanager.results.tfevents.reader import is_event_file
from runmanager.text import pluralize
from runmanager.tracking.tensorboard.event_writer import EventWriter
from runmanager.tracking.tensorboard.hparams import (
    CHARTS,
    charts_of,
    experiment_summary,
    metric_columns,
    mixed_type_settings,
    scalar_layout,
    session_start,
)

if TYPE_CHECKING:
    from runmanager.results.report.markdown_summary import MarkdownSummary

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


_MAX_COST = 0.05  # share of the time for reading and drawing: runs may be training on the same machine
_RGBA = 4  # `colorspace` of an image summary
_GROUP = "across_runs"  # sorts before the groups of the runs' tags: TensorBoard opens the first three


class SweepSummaryWriter:
    """Writes a folder next to the linked runs, again whenever a run starts or ends.

    TensorBoard keeps what it read first under a name, such as an experiment or a removed tag. The folder's name
    therefore contains the sweep's progress, and changed content gets a new name. The folder has no settings, so that
    HParams shows no row for it. Nothing is written into the sweep's own folder.
    """

    def __init__(self, sweep: SweepPaths, runs: SweepLogdir, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds; it limits the share of time that is spent here."""
        self._sweep = sweep
        self._runs = runs
        self._clock = clock
        self._observer = HeartbeatObserver()
        self._current_name = ""
        self._num_written = 0
        self._drawn_state: Hashable = None
        self._is_warm = False
        self._has_failed = False
        self._due = clock()

    def declare(self) -> None:
        """Write the HParams columns only, which takes as long as reading a few runs: before the server starts."""
        if self._runs.has_begun:
            metrics = metric_columns(_readable_runs(self._sweep))
            num_cells = len(self._runs.cells)
            self._replace(_name(num_cells, num_cells), [experiment_summary(self._runs.cells, metrics)])

    @property
    def first_tab(self) -> str:
        """The part of the page's address that opens it at the losses and accuracies, training beside validation.

        TensorBoard would begin with the images of the sweep, as it sorts by name. A program that logs itself has tags
        that these charts do not know.
        """
        first = next(_readable_runs(self._sweep), None)
        return "" if first is None or first.record.origins else "#custom_scalars"

    def refresh(self) -> bool:
        """Draw the sweep if runs started or ended since, unless drawing has taken too large a share of the time.

        Returns whether it drew. Raises `OSError` if a file is unreadable or not writable; the next call may succeed.
        """
        began = self._clock()
        if began < self._due or not self._runs.has_begun:
            return False
        failed_before, self._has_failed = self._has_failed, True
        try:
            if has_changed := (state := self._state()) != self._drawn_state:
                self._draw()
                self._drawn_state = state
            self._has_failed = False
            return has_changed
        finally:
            ended = self._clock()
            # The first drawing includes imports, so its time does not count. A first failure is tried again soon: a
            # file that was just being replaced should not keep what is new from the page.
            is_free = not self._is_warm or (self._has_failed and not failed_before)
            self._due = ended if is_free else ended + (ended - began) / _MAX_COST
            self._is_warm = True

    def _state(self) -> Hashable:
        """Return everything that the drawing depends on."""
        found = read_sweep(self._sweep, observer=self._observer, epochs_of=lambda _: False)
        runs = tuple((run.name, run.record.attempt, run.record.status) for run in found.runs)
        return runs, len(self._runs.cells)

    def _draw(self) -> None:
        from runmanager.results.report.markdown_summary import summarize_in_markdown
        from runmanager.results.sweep_snapshot import SweepSnapshot

        snapshot = SweepSnapshot.read(self._sweep, observer=self._observer)
        runs = snapshot.sweep.runs
        num_ended = sum(run.record.status.is_ended for run in runs)
        summaries = [experiment_summary(self._runs.cells, metric_columns(runs, read_all=True))]
        epochs = [epoch for run in runs for epoch in run.epochs]
        if (charts := charts_of(metric_names(epochs), unit_names(epochs))) != CHARTS:
            summaries.append(scalar_layout(charts))
        if num_ended:
            summaries.append(_as_summary(summarize_in_markdown(snapshot)))
        self._replace(_name(num_ended, len(self._runs.cells)), summaries)

    def _replace(self, name: str, summaries: Sequence[Summary]) -> None:
        """Replace the last folder by one with this name; at every moment one of them is served."""
        # Ascending: if the folder's name stays the same, TensorBoard continues with the next file.
        self._num_written += 1
        served = self._runs.served
        with served.replacing(name) as folder:
            writer = EventWriter(folder, folder / f"events.out.tfevents.{self._num_written:010d}.sweep")
            for summary in summaries:
                writer.summary(summary)
            writer.close()
        before, self._current_name = self._current_name, name
        if before not in ("", name):
            served.remove(before)


def _name(num_ended: int, num_cells: int) -> str:
    """Name the folder, with spaces, which short names of runs do not have."""
    runs = pluralize(num_cells, "run")
    return f"sweep of {runs}" if num_ended == num_cells else f"sweep, {num_ended:,} of {runs} ended"


def _readable_runs(sweep: SweepPaths) -> Iterator[StoredRun]:
    for name in run_names(sweep):
        try:
            yield read_run(sweep.run(name))
        except RecordError:
            continue


def _as_summary(markdown: "MarkdownSummary") -> Summary:
    # Numbered, as TensorBoard sorts tags by name.
    numbered = {f"{_GROUP}/{number}-{name}": png for number, (name, png) in enumerate(markdown.pictures.items(), 1)}
    pictures = [Summary.Value(tag=tag, image=_image(png)) for tag, png in numbered.items()]
    return Summary(value=[*pictures, *(_text(f"{_GROUP}/{name}", text) for name, text in markdown.texts.items())])


def _image(png: bytes) -> Summary.Image:
    width, height = struct.unpack(">II", png[16:24])  # the first chunk of a PNG, after its signature
    return Summary.Image(width=width, height=height, colorspace=_RGBA, encoded_image_string=png)


def _text(tag: str, markdown: str) -> Summary.Value:
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = TensorProto(dtype=DT_STRING, string_val=[markdown.encode()], tensor_shape=TensorShapeProto())
    return Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
