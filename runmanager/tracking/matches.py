"""The correct predictions of an epoch: kept or marked on their device in a buffer, counted a buffer at a time."""

import torch

from runmanager.errors import TensorMismatchError
from runmanager.tracking.losses import zeros

__all__ = ["MatchBuffer"]

_ROOM = (1 << 15) - 1
"""Of comparisons, a byte each, and of scores, which a core's own cache holds.

Of one more PyTorch makes the work of several threads on the CPU: on a busy one these wait for each other several times
as long as the whole takes.
"""
_MOST_KEPT = 128  # batches of which scores are kept: more save nothing, and their places would take long to make


class MatchBuffer:
    """Counts predictions that are as labelled. A step costs two operations on the device; only `total` waits for it.

    The scores of small batches are copied, and compared many steps at a time: a step of training leaves nothing in the
    caches of what is done between two steps, which then takes several times as long. Room for them is made where a
    batch is of the same kind as the one before: where batches vary in size, each would want room of its own.
    """

    def __init__(self) -> None:
        self.num_predictions = 0
        self.num_samples = 0
        self._kind: tuple[object, ...] = ()  # of the last batch, and of those that `_kept` has places for
        self._kept: _Kept | None = None
        self._matches: torch.Tensor | None = None
        self._room = self._used = 0
        self._sum: torch.Tensor | None = None

    def add(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        """Compare scores (batch, classes) with class numbers (batch,), or (batch, classes, …) with (batch, …).

        Raises `TensorMismatchError` when the two do not belong together.
        """
        kind = (preds.shape, labels.shape, preds.dtype, labels.dtype, preds.device, labels.device)
        if kind != self._kind:
            _check(preds, labels)
            self._compare_kept()
            self._kind, self._kept = kind, None
        elif self._kept is None and _is_small(preds):
            self._kept = _Kept(preds, labels)
        if self._kept is None:
            self._compare(preds, labels)
        elif self._kept.add(preds, labels):
            self._compare_kept()
        self.num_predictions += labels.numel()
        self.num_samples += len(labels)

    def total(self) -> int | None:
        """How many were correct, None without a prediction; waits for the device."""
        self._compare_kept()
        self._empty()
        return None if self._sum is None else int(self._sum)

    def _compare_kept(self) -> None:
        if self._kept is not None:
            self._compare(*self._kept.taken())

    def _compare(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        """Mark which are correct."""
        chosen = preds.argmax(dim=1)  # of which no gradient can be taken: nothing holds on to the step's graph
        if chosen.ndim > 1:
            chosen, labels = chosen.reshape(-1), labels.reshape(-1)
        place = self._place(len(labels), preds.device)
        if place.device == preds.device:
            torch.eq(chosen, labels, out=place)
        else:
            place.copy_(chosen == labels)

    def _place(self, count: int, device: torch.device) -> torch.Tensor:
        """Room for `count` comparisons, on the device of the first ones."""
        if self._used + count > self._room:
            self._empty()
        if self._matches is None or count > self._room:
            self._room = max(_ROOM, count)
            device = device if self._matches is None else self._matches.device
            self._matches = zeros(self._room, dtype=torch.bool, device=device)
        self._used += count
        return self._matches[self._used - count : self._used]

    def _empty(self) -> None:
        """Add the comparisons that are marked to the sum."""
        if self._used:
            assert self._matches is not None
            if self._sum is None:
                self._sum = zeros(dtype=torch.int64, device=self._matches.device)
            self._sum.add_(self._matches[: self._used].sum())
            self._used = 0


class _Kept:
    """Copies of the scores (batch, classes) and labels (batch,) of some steps, all of one kind."""

    def __init__(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        room = min(_MOST_KEPT, _ROOM // preds.numel())
        self._scores = zeros(room, *preds.shape, dtype=preds.dtype, device=preds.device)
        self._labels = zeros(room, *labels.shape, dtype=labels.dtype, device=labels.device)
        self._places = list(zip(self._scores.unbind(), self._labels.unbind(), strict=True))
        self._used = 0

    def add(self, preds: torch.Tensor, labels: torch.Tensor) -> bool:
        """Take them in, as the caller may write its next ones into the same memory; whether it is full now."""
        scores_place, labels_place = self._places[self._used]
        scores_place.copy_(preds.detach())
        labels_place.copy_(labels)
        self._used += 1
        return self._used == len(self._places)

    def taken(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What was taken in since the last time, as scores (samples, classes) and labels (samples,)."""
        used, self._used = self._used, 0
        return self._scores[:used].flatten(0, 1), self._labels[:used].flatten()


def _is_small(preds: torch.Tensor) -> bool:
    return preds.ndim == 2 and 0 < preds.numel() <= _ROOM // 2


def _check(preds: torch.Tensor, labels: torch.Tensor) -> None:
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
