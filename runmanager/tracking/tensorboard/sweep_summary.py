"""The sweep as a run in TensorBoard: columns of the HParams tab, findings, figures and tables.

| tag | kind | when |
| --- | --- | --- |
| `across_runs/<number>-<figure>` | image | the report's figures, once a run has ended, with two cells or more |
| `across_runs/answers`, `across_runs/results` | text | once a run has ended: the findings; one row per cell |
| `across_runs/comparison` | text | one row per matched pair, if there are any |
| `across_runs/figures` | text | a description of each figure |
| `_hparams_/experiment` | HParams | always: the settings that vary, and the metrics |
| `custom_scalars__config__` | layout | if a run logged metrics or units: their charts in the Custom Scalars tab |
"""

import struct
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING

from runmanager.errors import RecordError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.storage.reader import StoredRun, read_run, read_sweep, run_names
from runmanager.results.load.run_summary import metric_names, unit_names
from runmanager.text import pluralize
from runmanager.tracking.tensorboard.event_writer import EventWriter
from runmanager.tracking.tensorboard.hparams import CHARTS, charts_of, experiment_summary, metric_columns, scalar_layout
from runmanager.tracking.tensorboard.logdir import SweepLogdir

if TYPE_CHECKING:
    from runmanager.results.report.markdown_summary import MarkdownSummary

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
