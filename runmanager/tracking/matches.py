"""The correct predictions of an epoch: marked on their device in one buffer, counted a buffer at a time."""

import torch

from runmanager.errors import TensorMismatchError
from runmanager.tracking.losses import zeros

__all__ = ["MatchBuffer"]

_ROOM = 1 << 16  # predictions: a byte each


class MatchBuffer:
    """Counts predictions that are as labelled. A step costs two operations on the device; only `total` waits for it."""

    def __init__(self) -> None:
        self.num_predictions = 0
        self.num_samples = 0
        self._buffer: torch.Tensor | None = None
        self._room = self._used = 0
        self._sum: torch.Tensor | None = None

    def add(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        """Compare scores (batch, classes) with class numbers (batch,), or (batch, classes, …) with (batch, …).

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
        chosen = preds.argmax(dim=1)  # of which no gradient can be taken: nothing holds on to the step's graph
        if len(shape) > 2:
            chosen, labels = chosen.reshape(-1), labels.reshape(-1)
        torch.eq(chosen, labels, out=self._place(len(labels), preds.device))
        self.num_predictions += len(labels)
        self.num_samples += shape[0]

    def total(self) -> int | None:
        """How many were correct, None without a prediction; waits for the device."""
        self._empty()
        return None if self._sum is None else int(self._sum)

    def _place(self, count: int, device: torch.device) -> torch.Tensor:
        """Room for `count` comparisons."""
        if self._used + count > self._room:
            self._empty()
        if self._buffer is None or count > self._room:
            self._room = max(_ROOM, count)
            self._buffer = zeros(self._room, dtype=torch.bool, device=device)
        self._used += count
        return self._buffer[self._used - count : self._used]

    def _empty(self) -> None:
        """Add what the buffer holds to the sum."""
        if self._used:
            assert self._buffer is not None
            if self._sum is None:
                self._sum = zeros(dtype=torch.int64, device=self._buffer.device)
            self._sum.add_(self._buffer[: self._used].sum())
            self._used = 0
