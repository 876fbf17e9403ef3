"""Loss and accuracy of an epoch, summed on the device and transferred to the host once."""

from dataclasses import dataclass

import torch

from runmanager.tracking.epoch_metrics.correct_counter import CorrectCounter
from runmanager.tracking.epoch_metrics.epoch_totals import MeterTotals
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses, LossBuffer
from runmanager.tracking.epoch_metrics.prediction_task import PredictionFormat
from runmanager.tracking.epoch_part import MeterState

__all__ = ["Averages", "EpochMeter", "notes_on"]


@dataclass(frozen=True)
class Averages:
    """Means over `samples` samples, the accuracy over the labels that count; None if never tracked."""

    samples: int
    loss: float | None
    accuracy: float | None


class EpochMeter:
    """Sums up an epoch without waiting for the device; only `averages` and `logged_losses` wait for it.

    Also keeps every `log_every`th loss (0: none), counting on from `steps_before`, the run's steps before this epoch.
    """

    def __init__(self, *, log_every: int = 0, steps_before: int = 0) -> None:
        self._losses = LossBuffer(log_every=log_every, steps_before=steps_before)
        self._correct = CorrectCounter()
        self.add_predictions = self._correct.add  # the method itself, which saves a call per step
        self._loss_samples = 0
        self._samples_without_loss = 0
        self.num_uncounted = 0

    @property
    def samples(self) -> int:
        """The number of samples so far; 0 if that of some step is not known."""
        return (
            0 if self.num_uncounted else max(self._loss_samples + self._samples_without_loss, self._correct.num_samples)
        )

    def add_loss(self, loss: torch.Tensor | float | None, samples: int | None) -> None:
        """Add a step's mean loss, a scalar, weighted by its number of samples; either is None if it is not known."""
        if samples is None:
            self.num_uncounted += 1
            samples = 1
        if loss is None:
            self._samples_without_loss += samples
            return
        self._losses.add(loss, samples)
        self._loss_samples += samples

    @property
    def uncompared(self) -> str:
        """Why the accuracy is not known, though there are predictions; empty if it is."""
        return self._correct.uncompared

    @property
    def prediction_format(self) -> PredictionFormat:
        """The format of the last predictions."""
        return self._correct.prediction_format

    def averages(self) -> Averages:
        """Return the means; waits for the device."""
        totals = self.totals()
        return Averages(totals.samples, totals.loss, totals.accuracy)

    def totals(self) -> MeterTotals:
        """Return the sums; waits for the device."""
        total, (correct, counted) = self._losses.total(), self._correct.total()
        return MeterTotals(self.samples, total, self._loss_samples, correct, counted, self.num_uncounted)

    def state(self) -> MeterState:
        """Return the state for a checkpoint; waits for the device, and changes no result."""
        correct, counted = self._correct.total()
        return MeterState(
            self._losses.state(),
            self._loss_samples,
            self._correct.num_samples,
            *(correct, counted, self.num_uncounted, self.uncompared),
        )

    def restore(self, state: MeterState) -> None:
        """Continue a new meter from `state`."""
        self._losses.restore(state.losses)
        self._loss_samples, self.num_uncounted = state.loss_samples, state.num_uncounted
        self._correct.restore(
            num_samples=state.prediction_samples,
            correct=state.num_correct,
            counted=state.num_counted,
            uncompared=state.uncompared,
        )

    def logged_losses(self) -> LoggedLosses:
        """Return the losses kept for logging; waits for the device."""
        return self._losses.logged()


def notes_on(meter: EpochMeter, kind: str = "") -> list[str]:
    """Return lines on what a meter could not count or compare; equal ones for all epochs of a run."""
    notes = []
    if meter.num_uncounted:
        notes.append(
            f"the number of {kind}samples is not known, as some batches do not show theirs: there is no throughput, "
            "and the loss is the mean over steps; samples=… states it where the program tracks its steps itself"
        )
    if meter.uncompared:
        notes.append(f"the accuracy of {kind}predictions is not known: they must be comparable ({meter.uncompared})")
    return notes
