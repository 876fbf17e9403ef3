"""The last evaluation of a run, for the sinks that make something of it when the epochs are over."""

from collections.abc import Iterable, Sequence

from runmanager.records.run.record import EpochRecord
from runmanager.tracking.metrics.evaluation import Evaluation
from runmanager.tracking.sinks import Sink, score_sinks

__all__ = ["LastEvaluation"]


class LastEvaluation:
    """Keeps what the last evaluation said of its samples; `is_wanted` where one of the sinks looks at that."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._sinks = score_sinks(sinks)
        self._last: tuple[EpochRecord, Evaluation] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody looks at it."""
        return bool(self._sinks)

    def keep(self, record: EpochRecord, evaluation: Evaluation | None) -> None:
        """Let this epoch's be the last, if it was evaluated."""
        if evaluation is not None:
            self._last = (record, evaluation)

    def is_lost(self, history: Sequence[EpochRecord]) -> bool:
        """Whether somebody wants it, and an earlier process took it along when it broke off after the last epoch."""
        return self.is_wanted and self._last is None and bool(history) and history[-1].val_loss is not None

    def finish(self) -> list[str]:
        """Tell the sinks that this was the last one; returns their notes."""
        return [] if self._last is None else [note for sink in self._sinks for note in sink.finish(*self._last)]
