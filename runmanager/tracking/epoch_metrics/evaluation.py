"""Scores of an evaluation's samples, transferred on demand, and predictions from them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runmanager.tracking.epoch_metrics.loss_buffer import zeros
from runmanager.tracking.epoch_metrics.prediction_task import PredictionFormat, comparable

MAX_SCORES = 1 << 20
"""The limit on kept scores: 4 MiB, or 100,000 samples of ten classes."""

_NO_CLASS = -1
_NUM_SLOTS = 32  # made at a time for the batches that follow: making each separately would cost as much as the copies


@dataclass(frozen=True)
class Scores:
    """The scores (samples, classes) of an evaluation's first samples, float32 on the CPU, and their labels (samples,).

    A sample whose scores did not fit the others has the label -1. `num_evaluated` is the total number of samples.
    """

    scores: torch.Tensor
    labels: torch.Tensor
    num_evaluated: int


class Evaluation:
    """Keeps the scores of an epoch's evaluated samples, in the order of their loader.

    A batch costs two copies on the device, made immediately, as the caller may reuse its memory. Only `scores`, called
    after the last batch, waits for the device.
    """

    def __init__(self) -> None:
        self._loaders: list[Iterable[Any]] = []
        self._scores: torch.Tensor | None = None
        self._labels: torch.Tensor | None = None
        self._num_samples = 0
        self._shape: torch.Size | None = None  # of the last batch, and of those that have slots
        self._slots: list[tuple[torch.Tensor, torch.Tensor]] = []  # the next one last
        self._prediction_format: PredictionFormat | None = None  # of the last batch
        self._on_host: Scores | None = None
        self._is_dropped = False  # as the positions of samples after some that were not comparable are not known

    @property
    def loader(self) -> Iterable[Any] | None:
        """The samples' loader; None if there were several, or if it is unknown."""
        return self._loaders[0] if len(self._loaders) == 1 else None

    def add_loader(self, loader: Iterable[Any]) -> None:
        """Record that the following samples come from `loader`."""
        self._loaders.append(loader)

    def add(self, preds: torch.Tensor, labels: torch.Tensor, prediction_format: PredictionFormat) -> None:
        """Keep a batch of scores (batch, classes) and class numbers (batch,); count any other without keeping it."""
        try:
            preds, labels = comparable(preds, labels)
        except Exception:  # the accuracy is not known either, which a note says
            self._is_dropped = True
            return
        begin, self._num_samples = self._num_samples, self._num_samples + len(labels)
        if self._slots and preds.shape == self._shape and prediction_format is self._prediction_format:
            scores_slot, labels_slot = self._slots.pop()
            scores_slot.copy_(preds.detach())
            labels_slot.copy_(labels)
            _hide_ignored(labels_slot, prediction_format)
        else:
            self._add_without_slot(begin, preds, labels, prediction_format)

    def _add_without_slot(
        self, begin: int, preds: torch.Tensor, labels: torch.Tensor, prediction_format: PredictionFormat
    ) -> None:
        """Keep a batch that has no slot, and make slots for the batches that follow, in case they have its shape."""
        are_scores = prediction_format.class_dim is not None and preds.ndim == 2 and not preds.dtype.is_complex
        if not begin and are_scores:
            capacity = MAX_SCORES // max(1, preds.shape[1])
            self._scores = zeros(capacity, preds.shape[1], dtype=torch.float32, device=preds.device)
            self._labels = zeros(capacity, dtype=torch.int64, device=preds.device)
        self._slots = []
        if self._scores is None or self._labels is None:
            return
        kept = slice(begin, min(self._num_samples, len(self._scores)))
        if kept.start >= kept.stop:
            return
        if not are_scores or preds.shape[1] != self._scores.shape[1]:
            self._labels[kept].fill_(_NO_CLASS)  # so that they are not counted
            return
        count = kept.stop - kept.start
        self._scores[kept].copy_(preds.detach()[:count])
        self._labels[kept].copy_(labels[:count])
        _hide_ignored(self._labels[kept], prediction_format)
        self._prediction_format = prediction_format
        self._shape, self._slots = preds.shape, self._slots_after(kept.stop, count)

    def _slots_after(self, begin: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Make slots for the next batches of `count` samples, as far as whole batches fit."""
        assert self._scores is not None and self._labels is not None
        number = min(_NUM_SLOTS, (len(self._scores) - begin) // count)
        following = slice(begin, begin + number * count)
        with torch.inference_mode(False):  # or the slots could not be written to after it
            scores, labels = self._scores[following].split(count), self._labels[following].split(count)
        return list(zip(scores, labels, strict=True))[::-1] if number else []

    def scores(self) -> Scores | None:
        """Return the kept scores, None if there are none; waits for the device once, and frees its memory."""
        if self._is_dropped:
            return None
        if self._on_host is None and self._scores is not None and self._labels is not None:
            kept = slice(min(self._num_samples, len(self._scores)))
            self._on_host = Scores(self._scores[kept].cpu(), self._labels[kept].cpu(), self._num_samples)
            self._scores = self._labels = None
            self._slots = []
        return self._on_host


def _hide_ignored(labels: torch.Tensor, prediction_format: PredictionFormat) -> None:
    """Replace labels that do not count by -1; usual ones, like -100, are below 0 anyway."""
    ignored = prediction_format.ignored
    if ignored is not None and ignored >= 0:
        labels.masked_fill_(labels == ignored, _NO_CLASS)


@dataclass(frozen=True)
class Prediction:
    """The sample at `index` in the evaluation: its true and its predicted class, and the probability of each."""

    index: int
    label: int
    predicted: int
    label_probability: float
    probability: float

    @property
    def is_right(self) -> bool:
        return self.label == self.predicted


def confusion_matrix(scores: Scores) -> torch.Tensor:
    """Count the samples by true class (rows) and predicted class (columns): (classes, classes), int64.

    Samples whose label is not a class number are left out, as in a loss.
    """
    num_classes = scores.scores.shape[1]
    known = _known(scores)
    pairs = scores.labels[known] * num_classes + scores.scores[known].argmax(dim=1)
    return torch.bincount(pairs, minlength=num_classes**2).view(num_classes, num_classes)


def count_correct(scores: Scores) -> tuple[int, int]:
    """Return the number of samples with a class number as label, and how many of these are predicted correctly."""
    known = _known(scores)
    correct = scores.scores[known].argmax(dim=1) == scores.labels[known]
    return len(correct), int(correct.sum())


def least_confident(scores: Scores, count: int) -> Sequence[Prediction]:
    """Return the `count` samples whose true class is least probable, in ascending order of that probability."""
    indices = _known(scores).nonzero().flatten()
    labels, of_classes = scores.labels[indices], probabilities(scores.scores[indices])
    of_labels = of_classes.gather(1, labels[:, None]).flatten()
    lowest = of_labels.argsort(stable=True)[:count]
    highest, predicted = of_classes[lowest].max(dim=1)
    columns = (indices[lowest], labels[lowest], predicted, of_labels[lowest], highest)
    return [Prediction(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def probabilities(scores: torch.Tensor) -> torch.Tensor:
    """Return class probabilities (samples, classes): the softmax, unless the scores are probabilities already."""
    sums = scores.sum(dim=1)
    if len(scores) and bool((scores >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
        return scores
    return scores.nan_to_num().softmax(dim=1)


def _known(scores: Scores) -> torch.Tensor:
    return (scores.labels >= 0) & (scores.labels < scores.scores.shape[1])
