"""Loss and correct predictions, added up on the device and brought home once."""

from dataclasses import dataclass

import torch

from runmanager.errors import TensorMismatchError

__all__ = ["Averages", "Meter"]


@dataclass(frozen=True)
class Averages:
    """Means over `samples` samples; None is what was never tracked."""

    samples: int
    loss: float | None
    accuracy: float | None


class Meter:
    """Adds up an epoch without waiting for the device: `add` launches work there, `averages` is the one transfer."""

    def __init__(self) -> None:
        self._loss: torch.Tensor | None = None
        self._correct: torch.Tensor | None = None
        self._loss_samples = 0
        self._predictions = 0
        self._prediction_samples = 0

    @property
    def samples(self) -> int:
        """Samples counted so far."""
        return max(self._loss_samples, self._prediction_samples)

    @torch.no_grad()
    def add_loss(self, loss: torch.Tensor | float, samples: int) -> None:
        """Count a step's mean loss, a scalar, for `samples` samples, so that a smaller last batch weighs less."""
        value = loss.detach() if isinstance(loss, torch.Tensor) else torch.tensor(float(loss), dtype=torch.float64)
        if value.numel() != 1:
            raise TensorMismatchError(
                f"The loss must be one number a step, got shape {tuple(value.shape)}; take its mean before tracking it."
            )
        if self._loss is None:
            self._loss = torch.zeros((), dtype=_sum_type(value.device), device=value.device)
        self._loss.add_(value.reshape(()), alpha=samples)
        self._loss_samples += samples

    @torch.no_grad()
    def add_predictions(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        """Count correct predictions: preds are scores (batch, classes), labels class numbers (batch,).

        Where a sample has many predictions, as one a pixel, they are (batch, classes, …) and (batch, …).

        Raises `TensorMismatchError` when the two do not belong together.
        """
        if preds.ndim < 2 or (preds.shape[0], *preds.shape[2:]) != tuple(labels.shape):
            raise TensorMismatchError(
                "Predictions must be scores (batch, classes) beside labels (batch,), got shapes "
                f"{tuple(preds.shape)} and {tuple(labels.shape)}."
            )
        if preds.device != labels.device:
            raise TensorMismatchError(
                f"Predictions and labels must be on one device, got preds on {preds.device} and labels on "
                f"{labels.device}; move the labels with labels.to('{preds.device}')."
            )
        correct = (preds.argmax(dim=1) == labels).sum()
        if self._correct is None:
            self._correct = torch.zeros((), dtype=torch.int64, device=correct.device)
        self._correct.add_(correct)
        self._predictions += labels.numel()
        self._prediction_samples += labels.shape[0]

    def averages(self) -> Averages:
        """The means; waits for the device."""
        loss = accuracy = None
        if self._loss is not None and self._loss_samples:
            loss = float(self._loss) / self._loss_samples
        if self._correct is not None and self._predictions:
            accuracy = int(self._correct) / self._predictions
        return Averages(self.samples, loss, accuracy)


def _sum_type(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64
