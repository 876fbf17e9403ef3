"""When a run stops before its last planned epoch, and with which outcome: diverged, stopped early or interrupted."""

from collections.abc import Sequence

from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.tracking.lifecycle.outcome import divergence_of, outcome_of_epochs
from runmanager.tracking.options import METRICS, EarlyStopOptions, is_better, metric_value

__all__ = ["EarlyStopping", "StopPolicy"]


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
    """Decides whether a run stops after an epoch, and the outcome of a run that ends without an exception."""

    def __init__(self, early_stop: EarlyStopOptions) -> None:
        self._early_stopping = EarlyStopping(early_stop)
        self._stop: Outcome | None = None
        self._interruption: Outcome | None = None

    @property
    def should_stop(self) -> bool:
        """Whether no further epoch may begin."""
        return self._stop is not None

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
        has_diverged = self._stop is not None and self._stop.reason is Reason.DIVERGED
        if not has_diverged:  # else the rest of a loop by steps, after its first interval that diverged
            self._stop = divergence_of(record, counted=counted) or self._stop
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
        self._stop = self._stop or Outcome(Status.FINISHED, Reason.EARLY_STOPPED, message)

    def interrupt(self, message: str) -> None:
        """Stop after the current epoch; the run is recorded as `killed`, unless this is its last epoch anyway."""
        self._interruption = Outcome(Status.KILLED, Reason.INTERRUPTED, message)
        self._stop = self._stop or self._interruption

    def outcome(
        self,
        history: Sequence[EpochRecord],
        *,
        planned: int | None,
        is_measured: bool,
        needs_epochs: bool = True,
    ) -> Outcome:
        """Return the outcome of a run with `planned` epochs; an interrupted run is finished only if `is_measured`.

        A run that `needs_epochs` is not finished without any.
        """
        if not history and not needs_epochs and self._stop is None:
            return Outcome(Status.FINISHED)
        if self._interruption is not None and not is_measured:
            return self._interruption
        return outcome_of_epochs(history[-1].epoch if history else 0, planned=planned, stop=self._stop)
