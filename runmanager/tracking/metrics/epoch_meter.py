"""Loss and right predictions, added up on the device and brought home once."""

from dataclasses import dataclass

import torch

from runmanager.tracking.metrics.correct_counter import MatchBuffer
from runmanager.tracking.metrics.loss_buffer import LoggedLosses, LossBuffer
from runmanager.tracking.metrics.prediction_task import Reading

__all__ = ["Averages", "EpochMeter"]


@dataclass(frozen=True)
class Averages:
    """Means over `samples` samples, the accuracy over the labels that count; None is what was never tracked."""

    samples: int
    loss: float | None
    accuracy: float | None


class EpochMeter:
    """Adds up an epoch without waiting for the device: to add launches work there, `averages` brings it home.

    Every `log_every`th loss (0: none) is kept besides, counted from the `steps_before` this epoch.
    """

    def __init__(self, *, log_every: int = 0, steps_before: int = 0) -> None:
        self._losses = LossBuffer(log_every=log_every, steps_before=steps_before)
        self._matches = MatchBuffer()
        self.add_predictions = self._matches.add  # itself: a call more would be one more a step
        self._loss_samples = 0

    @property
    def samples(self) -> int:
        """Samples counted so far."""
        return max(self._loss_samples, self._matches.num_samples)

    def add_loss(self, loss: torch.Tensor | float, samples: int) -> None:
        """Count a step's mean loss, a scalar, for `samples` samples, so that a smaller last batch weighs less."""
        self._losses.add(loss, samples)
        self._loss_samples += samples

    @property
    def reading(self) -> Reading:
        """How the last predictions were read."""
        return self._matches.reading

    def averages(self) -> Averages:
        """The means; waits for the device."""
        total, (right, counted) = self._losses.total(), self._matches.total()
        loss = None if total is None or not self._loss_samples else total / self._loss_samples
        accuracy = right / counted if counted else None
        return Averages(self.samples, loss, accuracy)

    def logged_losses(self) -> LoggedLosses:
        """The losses that were to be kept; waits for the device."""
        return self._losses.logged()
