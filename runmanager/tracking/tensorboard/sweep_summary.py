"""The sweep itself as one more run of TensorBoard's: HParams' columns, what was found, the figures and the tables.

| tag | kind | when |
| --- | --- | --- |
| `across_runs/<number>-<figure>` | image | the report's figures, once a run has ended, of two cells or more |
| `across_runs/answers`, `across_runs/results` | text | likewise, of one cell too: what was found; a row a cell |
| `across_runs/comparison` | text | a row a matched pair, where there are any |
| `across_runs/figures` | text | what each figure shows, in words |
| `_hparams_/experiment` | HParams | always: the settings that vary, and the metrics |
"""

import shutil
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
from runmanager.text import pluralize
from runmanager.tracking.tensorboard.event_writer import EventWriter
from runmanager.tracking.tensorboard.hparams import experiment, measured
from runmanager.tracking.tensorboard.logdir import ServedRuns

if TYPE_CHECKING:
    from runmanager.results.report.markdown_summary import MarkdownSummary

__all__ = ["ServedSweep"]

_SHARE = 0.05  # of the time goes into looking and drawing, however many runs there are: others train beside it
_RGBA = 4  # `colorspace` of an image summary
_GROUP = "across_runs"  # the first by the alphabet of those that runs have: TensorBoard opens the first three


class ServedSweep:
    """A folder beside those of the served runs, made anew when a run begins or ends.

    TensorBoard keeps the first that it reads under a name: an experiment, a tag that has gone. So the folder's name
    says how far the sweep has come, and what has changed comes under another. It has no settings, so HParams makes no
    row of it. Nothing is written into the sweep's own folder.
    """

    def __init__(self, sweep: SweepPaths, runs: ServedRuns, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` tells seconds, for the share of the time that may be spent here."""
        self._sweep = sweep
        self._runs = runs
        self._clock = clock
        self._observer = HeartbeatObserver()
        self._making = runs.root.parent / ".sweep"
        self._shown = ""
        self._num_made = 0
        self._seen: Hashable = None
        self._has_looked = False
        self._due = clock()

    def declare(self) -> None:
        """Show HParams' columns alone, which is as fast as reading a few runs: before the server starts."""
        if self._runs.has_begun:
            metrics = measured(_readable_runs(self._sweep))
            num_cells = len(self._runs.cells)
            self._show(_name(num_cells, num_cells), [experiment(self._runs.cells, metrics)])

    def refresh(self) -> bool:
        """Draw the sweep, if runs began or ended since it was drawn, and no more than a share of the time goes into it.

        Returns whether it did. Raises `OSError` where something cannot be read or written; the next call may mend it.
        """
        began = self._clock()
        if began < self._due or not self._runs.has_begun:
            return False
        try:
            if (seen := self._state()) == self._seen:
                return False
            self._draw()
            self._seen = seen
            return True
        finally:
            ended = self._clock()
            # The first drawing imports what draws, and says nothing of the next one's time.
            self._due = ended + (ended - began) / _SHARE if self._has_looked else ended
            self._has_looked = True

    def _state(self) -> Hashable:
        """All that a new drawing would come of."""
        found = read_sweep(self._sweep, observer=self._observer, epochs_of=lambda _: False)
        runs = tuple((run.name, run.record.attempt, run.record.status) for run in found.runs)
        return runs, len(self._runs.cells)

    def _draw(self) -> None:
        from runmanager.results.report.markdown_summary import summarize_in_markdown
        from runmanager.results.snapshot import SweepSnapshot

        snapshot = SweepSnapshot.read(self._sweep, observer=self._observer)
        runs = snapshot.sweep.runs
        num_ended = sum(run.record.status.is_ended for run in runs)
        said = [experiment(self._runs.cells, measured(runs))]
        if num_ended:
            said.append(_as_summary(summarize_in_markdown(snapshot)))
        self._show(_name(num_ended, len(self._runs.cells)), said)

    def _show(self, name: str, said: Sequence[Summary]) -> None:
        """Put a folder of that name in the place of the last one."""
        shutil.rmtree(self._making, ignore_errors=True)
        self._making.mkdir()
        # Ascending, as TensorBoard reads on in the next file where the name of the folder stays.
        self._num_made += 1
        writer = EventWriter(self._making, self._making / f"events.out.tfevents.{self._num_made:010d}.sweep")
        for summary in said:
            writer.summary(summary)
        writer.close()
        if self._shown:
            shutil.rmtree(self._runs.root / self._shown, ignore_errors=True)
        self._making.rename(self._runs.root / name)
        self._shown = name


def _name(num_ended: int, num_cells: int) -> str:
    """What the run is called: with blanks, which no run's short name has."""
    runs = pluralize(num_cells, "run")
    return f"sweep of {runs}" if num_ended == num_cells else f"sweep, {num_ended:,} of {runs} ended"


def _readable_runs(sweep: SweepPaths) -> Iterator[StoredRun]:
    for name in run_names(sweep):
        try:
            yield read_run(sweep.run(name))
        except RecordError:
            continue


def _as_summary(seen: "MarkdownSummary") -> Summary:
    # Numbered, as TensorBoard sorts them: what answers first stands first.
    numbered = {f"{_GROUP}/{at}-{name}": png for at, (name, png) in enumerate(seen.pictures.items(), 1)}
    pictures = [Summary.Value(tag=tag, image=_image(png)) for tag, png in numbered.items()]
    return Summary(value=[*pictures, *(_text(f"{_GROUP}/{name}", text) for name, text in seen.texts.items())])


def _image(png: bytes) -> Summary.Image:
    width, height = struct.unpack(">II", png[16:24])  # the first chunk of a PNG, after its signature
    return Summary.Image(width=width, height=height, colorspace=_RGBA, encoded_image_string=png)


def _text(tag: str, markdown: str) -> Summary.Value:
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    tensor = TensorProto(dtype=DT_STRING, string_val=[markdown.encode()], tensor_shape=TensorShapeProto())
    return Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
