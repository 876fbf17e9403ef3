"""The correct predictions of an epoch: kept or marked on their device in a buffer, counted a buffer at a time."""

import torch

from runmanager.tracking.metrics.loss_buffer import zeros
from runmanager.tracking.metrics.prediction_task import IGNORED, Reading, Task, read

__all__ = ["MatchBuffer"]

_ROOM = (1 << 15) - 1
"""Of marks, a byte each, and of scores, which a core's own cache holds.

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
        self.num_samples = 0
        self.reading = Reading(1, None)  # of the last batch
        self._num_labels = 0
        self._kind: tuple[object, ...] = ()  # of the last batch, and of those that `_kept` has places for
        self._kept: _Kept | None = None
        self._right, self._ignored = _Marks(), _Marks()

    def add(
        self,
        preds: torch.Tensor,
        labels: torch.Tensor,
        task: Task | None = None,
        class_dim: int | None = None,
        ignore_index: int = IGNORED,
        samples: int | None = None,
    ) -> None:
        """Hold predictions against their labels, as `tasks.read` reads them; it raises where that is not clear.

        They count as those of `samples` samples, as many as there are rows of labels unless that is said.
        """
        said = task, class_dim, ignore_index  # all three are mostly left out
        kind = (preds.shape, labels.shape, preds.dtype, labels.dtype, preds.device, labels.device, said)
        if kind != self._kind:
            reading = read(preds, labels, task=task, class_dim=class_dim, ignore_index=ignore_index)
            self._compare_kept()
            self._kind, self._kept, self.reading = kind, None, reading
        elif self._kept is None and 0 < preds.numel() <= _ROOM // 2:
            self._kept = _Kept(preds, labels)
        if self._kept is None:
            self._compare(preds, labels)
        elif self._kept.add(preds, labels):
            self._compare_kept()
        self._num_labels += labels.numel()
        self.num_samples += len(labels) if samples is None else samples

    def total(self) -> tuple[int, int]:
        """How many predictions were right, and how many labels count; waits for the device."""
        self._compare_kept()
        return self._right.total(), self._num_labels - self._ignored.total()

    def _compare_kept(self) -> None:
        if self._kept is not None:
            self._compare(*self._kept.taken())

    def _compare(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        """Mark which are right, and which do not count."""
        class_dim, ignored = self.reading.class_dim, self.reading.ignored
        labels = labels.reshape(-1)
        if class_dim is None:
            chosen, labelled = (preds > 0).reshape(-1), labels > 0.5
        else:
            chosen, labelled = preds.argmax(dim=class_dim).reshape(-1), labels
        # Of neither can a gradient be taken: nothing holds on to the step's graph.
        if ignored is None or (ignored < 0 and class_dim is not None):  # no class has such a number
            self._right.add(chosen, labelled)
        else:
            self._right.add((chosen == labelled).logical_and_(labels != ignored), True)
        if ignored is not None:
            self._ignored.add(labels, ignored)


class _Marks:
    """Counts where values are equal: marked in a buffer on their device, and summed a buffer at a time."""

    def __init__(self) -> None:
        self._marks: torch.Tensor | None = None
        self._room = self._used = 0
        self._sum: torch.Tensor | None = None

    def add(self, values: torch.Tensor, others: torch.Tensor | int) -> None:
        """Mark where these are equal, (values,)."""
        place = self._place(len(values), values.device)
        if place.device == values.device:
            torch.eq(values, others, out=place)
        else:
            place.copy_(values == others)

    def total(self) -> int:
        """How many were; waits for the device."""
        self._empty()
        return 0 if self._sum is None else int(self._sum)

    def _place(self, count: int, device: torch.device) -> torch.Tensor:
        """Room for `count` marks, on the device of the first ones."""
        if self._used + count > self._room:
            self._empty()
        if self._marks is None or count > self._room:
            self._room = max(_ROOM, count)
            device = device if self._marks is None else self._marks.device
            self._marks = zeros(self._room, dtype=torch.bool, device=device)
        self._used += count
        return self._marks[self._used - count : self._used]

    def _empty(self) -> None:
        """Add what is marked to the sum."""
        if self._used:
            assert self._marks is not None
            if self._sum is None:
                self._sum = zeros(dtype=torch.int64, device=self._marks.device)
            self._sum.add_(self._marks[: self._used].sum())
            self._used = 0


class _Kept:
    """Copies of the predictions (batch, …) and labels (batch, …) of some steps, all of one kind."""

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
        """What was taken in since the last time, as of one large batch."""
        used, self._used = self._used, 0
        return self._scores[:used].flatten(0, 1), self._labels[:used].flatten(0, 1)
