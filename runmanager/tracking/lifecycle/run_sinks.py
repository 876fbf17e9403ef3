"""The sinks of one run: begun once, told of each epoch, and of the end where they have begun."""

from collections.abc import Sequence

from runmanager.records.run.record import EpochRecord, RunRecord
from runmanager.tracking.lifecycle.run_notes import RunNotes
from runmanager.tracking.sinks import EpochDetails, RunStart, Sink

__all__ = ["ToldSinks"]


class ToldSinks:
    """Tells `sinks` of a run; what they could not do goes to its `notes`."""

    def __init__(self, sinks: Sequence[Sink], notes: RunNotes) -> None:
        self.have_begun = False
        self._sinks = sinks
        self._notes = notes
        self._begun: list[Sink] = []

    def begin(self, start: RunStart) -> None:
        """The run begins; one that raises is not told of the end, nor are those after it."""
        self.have_begun = True
        for sink in self._sinks:
            self._notes.extend(sink.begin(start))
            self._begun.append(sink)

    def epoch(self, record: EpochRecord, details: EpochDetails) -> None:
        """An epoch has ended."""
        for sink in self._sinks:
            self._notes.extend(sink.epoch(record, details))

    def end(self, record: RunRecord) -> None:
        """The run has ended."""
        for sink in self._begun:
            sink.end(record)
