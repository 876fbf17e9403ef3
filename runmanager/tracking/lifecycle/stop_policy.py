"""When a run is to end, and as what: after its last epoch, or before that: diverged, stopped early or interrupted."""

from collections.abc import Sequence

from runmanager.records.run.record import EpochRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.tracking.early_stop import EarlyStop, EarlyStopOptions
from runmanager.tracking.lifecycle.outcome import divergence, outcome_of_epochs

__all__ = ["Ending"]


class Ending:
    """Looks at each epoch, hears who wants the run to end, and says what it has come to without an exception."""

    def __init__(self, early_stop: EarlyStopOptions) -> None:
        self._early_stop = EarlyStop(early_stop)
        self._stop: Outcome | None = None
        self._interruption: Outcome | None = None

    @property
    def is_due(self) -> bool:
        """Whether there is to be no further epoch."""
        return self._stop is not None

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody wants the run to end who may let it go on another time."""
        return self._interruption is not None

    def restore(self, history: Sequence[EpochRecord]) -> None:
        """Look at the epochs of before a break: it went on after all but the last, whatever was said then."""
        for earlier in history[:-1]:
            self._early_stop.reason(earlier)
        self.look_at(history[-1])

    def look_at(self, record: EpochRecord) -> None:
        """Let this epoch be the last one, if it diverged or nothing gets better any more."""
        self._stop = divergence(record) or self._stop
        if (reason := self._early_stop.reason(record)) is not None:
            self.stop_early(reason)

    def stop_early(self, message: str) -> None:
        """Let this epoch be the last; the run is finished."""
        self._stop = self._stop or Outcome(Status.FINISHED, Reason.EARLY_STOPPED, message)

    def interrupt(self, message: str) -> None:
        """Let this epoch be the last; the run reads `killed`, unless it was the last one anyway."""
        self._interruption = Outcome(Status.KILLED, Reason.INTERRUPTED, message)
        self._stop = self._stop or self._interruption

    def outcome(self, history: Sequence[EpochRecord], *, planned: int | None, is_measured: bool) -> Outcome:
        """What the run has come to, with so many epochs `planned`; one that is not measured yet is not whole."""
        if self._interruption is not None and not is_measured:
            return self._interruption
        return outcome_of_epochs(history[-1].epoch if history else 0, planned=planned, stop=self._stop)
