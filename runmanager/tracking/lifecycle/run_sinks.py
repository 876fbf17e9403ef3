"""The notes and the sinks of one run, and the last evaluation that some of them draw when the epochs are over."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.settings.secrets import redacted
from runmanager.records.storage.run_folder import RunFolder
from runmanager.text import encodable, truncated
from runmanager.tracking.epoch_metrics.evaluation import Evaluation
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses
from runmanager.tracking.introspect.isolation import UNSEEN_BATCH
from runmanager.tracking.sinks import EpochDetails, MediaSink, RunStart, Sink, score_sinks
from runmanager.tracking.timing.interleaving import without_wall_times


class RunNotes:
    """Collects the notes of a run, those of earlier attempts first, and stores them in its record."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._lines = list(folder.record.notes)

    def extend(self, lines: Iterable[str]) -> None:
        """Add notes; they are stored when the record is next written."""
        self._lines.extend(lines)

    def clear(self) -> None:
        """Forget all notes: they are those of an attempt of which nothing is kept."""
        self._lines.clear()

    @property
    def lines(self) -> tuple[str, ...]:
        """Each note once, sanitised and truncated for the record, as some quote an exception.

        Of a batch that could not be looked at, the first reason is enough.
        """
        unseen = [line for line in self._lines if line.startswith(UNSEEN_BATCH)]
        lines = [line for line in self._lines if line in unseen[:1] or line not in unseen]
        return tuple(dict.fromkeys(map(_bounded, lines)))

    def note(self, line: str) -> None:
        """Add a note and store it immediately."""
        self._lines.append(line)
        self._folder.write(notes=self.lines)

    def note_deviation(self, line: str) -> None:
        """Store a deviation from the requested settings immediately; tables show it."""
        self._folder.write(deviations=tuple(dict.fromkeys((*self._folder.record.deviations, _bounded(line)))))


def _bounded(line: str) -> str:
    return truncated(redacted(encodable(line)))


class RunSinks:
    """Notifies sinks of a run's events; the notes that they return go to `notes`."""

    def __init__(self, sinks: Sequence[Sink], notes: RunNotes, folder: RunFolder, device: torch.device) -> None:
        self.have_begun = False
        self._folder = folder
        self.device = device
        self._sinks = sinks
        self._score_sinks = score_sinks(sinks)
        self.notes = notes
        self._begun: list[Sink] = []
        self._waiting: list[Callable[[MediaSink], None]] = []
        self._last_evaluation: tuple[EpochRecord, Evaluation] | None = None

    @property
    def need_scores(self) -> bool:
        """Whether a sink uses the scores of evaluations."""
        return bool(self._score_sinks)

    def begin(self, network: torch.nn.Module | None, first_batch: Any | None) -> None:
        """Begin the sinks. If one raises, neither it nor those after it are notified of the run's end."""
        self.have_begun = True
        start = RunStart(self._folder.record, self._folder.paths, network, self.device, first_batch)
        for sink in self._sinks:
            self.notes.extend(sink.begin(start))
            self._begun.append(sink)
        waiting, self._waiting = self._waiting, []
        for show in waiting:
            self._show(show)

    def points(self, points: Mapping[str, LoggedLosses]) -> None:
        """Pass on values of steps that belong to no record."""
        self._show(lambda sink: sink.points(points))

    def image(self, name: str, pixels: np.ndarray[Any, Any], step: int) -> None:
        """Pass on a picture, bytes (channels, height, width)."""
        self._show(lambda sink: sink.image(name, pixels, step))

    def text(self, name: str, text: str, step: int) -> None:
        """Pass on a text."""
        self._show(lambda sink: sink.text(name, text, step))

    def _show(self, show: Callable[[MediaSink], None]) -> None:
        """Let the sinks that take it show something, once they have begun."""
        if not self.have_begun:
            self._waiting.append(show)
            return
        for sink in self._begun:
            if isinstance(sink, MediaSink):
                show(sink)

    def ensure_begun(self, network: torch.nn.Module | None) -> None:
        """Begin the sinks without a first batch, unless they have begun."""
        if not self.have_begun:
            self.begin(network, None)

    def epoch(self, record: EpochRecord, details: EpochDetails) -> None:
        """Notify the sinks of a finished epoch, without its wall times, which do not yet include theirs."""
        self.set_last_evaluation(record, details.evaluation)
        shown = without_wall_times(record)
        for sink in self._sinks:
            self.notes.extend(sink.epoch(shown, details))

    def set_last_evaluation(self, record: EpochRecord, evaluation: Evaluation | None) -> None:
        """Remember an epoch's evaluation as the last one, if it had one."""
        if evaluation is not None:
            self._last_evaluation = (record, evaluation)

    def lack_last_evaluation(self, history: Sequence[EpochRecord]) -> bool:
        """Whether a sink needs the last epoch's evaluation, but an earlier process made it and has ended since."""
        is_missing = self.need_scores and self._last_evaluation is None
        return is_missing and bool(history) and history[-1].val_loss is not None

    def finish(self) -> None:
        """Pass the last evaluation to the sinks that use it."""
        if (last := self._last_evaluation) is not None:
            self.notes.extend([note for sink in self._score_sinks for note in sink.finish(*last)])

    def end(self, record: RunRecord) -> None:
        """Notify the sinks that have begun of the run's end."""
        for sink in self._begun:
            sink.end(record)
