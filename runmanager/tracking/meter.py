"""Loss and correct predictions, added up on the device and brought home once."""

from dataclasses import dataclass

import torch

from runmanager.errors import TensorMismatchError
from runmanager.tracking.losses import LoggedLosses, LossBuffer, zeros

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
        self._correct: torch.Tensor | None = None
        self._loss_samples = 0
        self._predictions = 0
        self._prediction_samples = 0

    @property
    def samples(self) -> int:
        """Samples counted so far."""
        return max(self._loss_samples, self._prediction_samples)

    def add_loss(self, loss: torch.Tensor | float, samples: int) -> None:
        """Count a step's mean loss, a scalar, for `samples` samples, so that a smaller last batch weighs less."""
        self._losses.add(loss, samples)
        self._loss_samples += samples

    def add_predictions(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        """Count correct predictions: preds are scores (batch, classes), labels class numbers (batch,).

        Where a sample has many predictions, as one a pixel, they are (batch, classes, …) and (batch, …).

        Raises `TensorMismatchError` when the two do not belong together.
        """
        shape = preds.shape
        if len(shape) < 2 or shape[:1] + shape[2:] != labels.shape:
            raise TensorMismatchError(
                "Predictions must be scores (batch, classes) beside labels (batch,), got shapes "
                f"{tuple(shape)} and {tuple(labels.shape)}."
            )
        if preds.device != labels.device:
            raise TensorMismatchError(
                f"Predictions and labels must be on one device, got preds on {preds.device} and labels on "
                f"{labels.device}; move the labels with labels.to('{preds.device}')."
            )
        # Of none of it a gradient can be taken, so nothing holds on to the step's graph.
        correct = (preds.argmax(dim=1) == labels).sum()
        if self._correct is None:
            self._correct = zeros(dtype=torch.int64, device=correct.device)
        self._correct.add_(correct)
        self._predictions += labels.numel()
        self._prediction_samples += shape[0]

    def averages(self) -> Averages:
        """The means; waits for the device."""
        loss = accuracy = None
        total = self._losses.total()
        if total is not None and self._loss_samples:
            loss = total / self._loss_samples
        if self._correct is not None and self._predictions:
            accuracy = int(self._correct) / self._predictions
        return Averages(self.samples, loss, accuracy)

    def logged_losses(self) -> LoggedLosses:
        """The losses that were to be kept; waits for the device."""
        return self._losses.logged()
