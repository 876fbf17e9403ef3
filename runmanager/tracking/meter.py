"""Loss and correct predictions, added up on the device and brought home once."""

from dataclasses import dataclass

import torch

from runmanager.tracking.losses import LoggedLosses, LossBuffer
from runmanager.tracking.matches import MatchBuffer

__all__ = ["Averages", "Meter"]


@dataclass(frozen=True)
class Averages:
    """Means over `samples` samples; None is what was never tracked."""

    samples: int
    loss: float | None
    accuracy: float | None


class Meter:
    """Adds up an epoch without waiting for the device: `add` launches work there, `averages` brings it home.

    Every `log_every`th loss (0: none) is kept besides, counted from the `steps_before` this epoch.
    """

    def __init__(self, *, log_every: int = 0, steps_before: int = 0) -> None:
        self._losses = LossBuffer(log_every=log_every, steps_before=steps_before)
        self._matches = MatchBuffer()
        self._loss_samples = 0

    @property
    def samples(self) -> int:
        """Samples counted so far."""
        return max(self._loss_samples, self._matches.num_samples)

    def add_loss(self, loss: torch.Tensor | float, samples: int) -> None:
        """Count a step's mean loss, a scalar, for `samples` samples, so that a smaller last batch weighs less."""
        self._losses.add(loss, samples)
        self._loss_samples += samples

    def add_predictions(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        """Count correct predictions: preds are scores (batch, classes), labels class numbers (batch,).

        Where a sample has many predictions, as one a pixel, they are (batch, classes, …) and (batch, …).

        Raises `TensorMismatchError` when the two do not belong together.
        """
        self._matches.add(preds, labels)

    def averages(self) -> Averages:
        """The means; waits for the device."""
        total, correct = self._losses.total(), self._matches.total()
        loss = None if total is None or not self._loss_samples else total / self._loss_samples
        accuracy = None if correct is None else correct / self._matches.num_predictions
        return Averages(self.samples, loss, accuracy)

    def logged_losses(self) -> LoggedLosses:
        """The losses that were to be kept; waits for the device."""
        return self._losses.logged()
