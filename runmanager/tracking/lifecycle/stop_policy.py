"""When a run stops before its last planned epoch: diverged, stopped early or interrupted; and what that says of its
end.
"""

from collections.abc import Sequence

from runmanager.records.run.measurement import METRICS
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.status import Outcome, Reason, Seen, Status
from runmanager.tracking.lifecycle.outcome import divergence_of
from runmanager.tracking.options import EarlyStopOptions, is_better, metric_value


class EarlyStopping:
    """Detects that a metric has stopped improving; each epoch is passed in once, so later epochs cost no more."""

    def __init__(self, options: EarlyStopOptions) -> None:
        self._options = options
        self._best: float | None = None
        self._best_epoch = 0
        self._num_since_best = 0  # epochs with the metric

    @property
    def notes(self) -> Sequence[str]:
        """A note if no epoch so far had the metric."""
        metric = self._options.metric
        return [f"no early stopping: no epoch recorded {metric}"] if metric and self._best is None else []

    def reason(self, record: EpochRecord, *, counted: str) -> str | None:
        """Return a readable reason to stop after this epoch, or None.

        Epochs that logged no such metric are skipped; a value that is missing or not finite counts as no improvement.
        """
        if self._options.metric is None:
            return None
        metric = self._options.metric
        if record.epoch == 0 or (metric not in METRICS and metric not in (record.metrics or {})):
            return None
        value = metric_value(record, metric)
        if value is None and self._best is None:
            return None
        if value is not None and is_better(metric, value, self._best, by=self._options.min_delta):
            self._best, self._best_epoch, self._num_since_best = value, record.epoch, 0
        else:
            self._num_since_best += 1
        if self._num_since_best < self._options.patience:
            return None
        assert self._best is not None
        best = f"{counted} {self._best_epoch} ({self._best:.4g})"
        if self._options.min_delta:  # a later value may have been better
            return f"{metric} has improved by no more than {self._options.min_delta:g} since {best}"
        return f"{metric} was best in {best}"


class StopPolicy:
    """Decides whether a run stops after an epoch, and tells what was seen of its end."""

    def __init__(self, early_stop: EarlyStopOptions) -> None:
        self._early_stopping = EarlyStopping(early_stop)
        self._own_stop: Outcome | None = None
        self._interruption: Outcome | None = None
        self._own_stop_is_first = False

    @property
    def should_stop(self) -> bool:
        """Whether no further epoch may begin."""
        return self._own_stop is not None or self.is_interrupted

    @property
    def is_interrupted(self) -> bool:
        """Whether the run was interrupted, so that it can be resumed later."""
        return self._interruption is not None

    @property
    def notes(self) -> Sequence[str]:
        """Readable notes on what could not be decided."""
        return self._early_stopping.notes

    def restore(self, history: Sequence[EpochRecord], *, counted: str) -> None:
        """Process the epochs of earlier attempts; only the last may stop the run, which continued after the others."""
        for earlier in history[:-1]:
            self._early_stopping.reason(earlier, counted=counted)
        if history:
            self.process_epoch(history[-1], counted=counted)

    def process_epoch(self, record: EpochRecord, *, counted: str = "epoch") -> None:
        """Stop after this epoch if it diverged or if the monitored metric no longer improves.

        Its number has `counted` epochs or steps.
        """
        has_diverged = self._own_stop is not None and self._own_stop.reason is Reason.DIVERGED
        if not has_diverged:  # else the rest of a loop by steps, after its first interval that diverged
            self._own_stop = divergence_of(record, counted=counted) or self._own_stop
        if (reason := self._early_stopping.reason(record, counted=counted)) is not None:
            self.stop_early(reason)

    def stop(self, stop: Outcome | None) -> None:
        """Stop after the current epoch as `stop` says; None: continue."""
        if stop is not None and stop.reason is Reason.INTERRUPTED:
            self.interrupt(stop.message)
        elif stop is not None:
            self.stop_early(stop.message)

    def stop_early(self, message: str) -> None:
        """Stop after the current epoch; the run is finished."""
        self._own_stop = self._own_stop or Outcome(Status.FINISHED, Reason.EARLY_STOPPED, message)

    def interrupt(self, message: str) -> None:
        """Stop after the current epoch; the run is recorded as `killed`, unless this is its last epoch anyway."""
        if self._interruption is None:
            self._own_stop_is_first = self._own_stop is not None
        self._interruption = Outcome(Status.KILLED, Reason.INTERRUPTED, message)

    def seen(
        self,
        history: Sequence[EpochRecord],
        *,
        planned: int | None,
        is_measured: bool,
        needs_epochs: bool = True,
    ) -> Seen:
        """Return what is known of the end of a run with `planned` epochs; it is complete only if it `is_measured`.

        A run that `needs_epochs` is not finished without any.
        """
        done = history[-1].epoch if history else 0
        is_complete = planned is not None and done >= planned
        own_end = Outcome(Status.FINISHED)
        if self._own_stop is not None and (not is_complete or self._own_stop.status is Status.FAILED):
            own_end = self._own_stop
        elif done == 0 and needs_epochs:
            # Nothing to keep: a rerun restarts it.
            own_end = Outcome(Status.KILLED, Reason.INTERRUPTED, "left before its first epoch had ended")
        elif planned is not None and done < planned:
            message = f"the loop was left after {done} of {planned} epochs"
            own_end = Outcome(Status.FINISHED, Reason.EARLY_STOPPED, message)
        return Seen(
            stop=self._interruption,
            own_end=own_end,
            own_end_is_first=self._own_stop_is_first and is_measured,
            is_complete=is_complete and is_measured,
        )
