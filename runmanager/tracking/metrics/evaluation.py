"""What an evaluation said of its samples: kept on the device up to a bound, and brought home when it is asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from runmanager.tracking.metrics.loss_buffer import zeros
from runmanager.tracking.metrics.prediction_task import Reading

__all__ = ["MAX_SCORES", "Evaluation", "Scores"]

MAX_SCORES = 1 << 20
"""Numbers that are kept of an evaluation: 4 MiB, or 100,000 samples of ten classes."""

_NO_CLASS = -1
_PLACES = 32  # for the batches that follow, made at once: to find each its place would cost as much as the copies


@dataclass(frozen=True)
class Scores:
    """The scores (samples, classes) of an evaluation's first samples, float32 on the CPU, and their labels (samples,).

    A sample whose scores could not be kept among the others has the label -1. `num_evaluated` is how many samples there
    were in all.
    """

    scores: torch.Tensor
    labels: torch.Tensor
    num_evaluated: int


class Evaluation:
    """Keeps the scores of the samples that an epoch was evaluated on, in the order of the loader that gave them.

    A batch costs two copies on the device, made at once, as the caller may write its next one into the same memory.
    Nothing waits for the device but `scores`, which is asked for when all of them are there.
    """

    def __init__(self) -> None:
        self._loaders: list[Iterable[Any]] = []
        self._scores: torch.Tensor | None = None
        self._labels: torch.Tensor | None = None
        self._num_samples = 0
        self._shape: torch.Size | None = None  # of the last batch, and of those that there are places for
        self._places: list[tuple[torch.Tensor, torch.Tensor]] = []  # the next one last
        self._reading: Reading | None = None  # of the last batch
        self._at_home: Scores | None = None

    @property
    def loader(self) -> Iterable[Any] | None:
        """What gave the samples; None where several did, or nobody knows."""
        return self._loaders[0] if len(self._loaders) == 1 else None

    def takes_from(self, loader: Iterable[Any]) -> None:
        """The samples that follow are those of `loader`."""
        self._loaders.append(loader)

    def add(self, preds: torch.Tensor, labels: torch.Tensor, reading: Reading) -> None:
        """Keep a batch: scores (batch, classes) and class numbers (batch,). Others are counted, and not kept."""
        begin, self._num_samples = self._num_samples, self._num_samples + len(labels)
        if self._places and preds.shape == self._shape and reading is self._reading:
            scores_place, labels_place = self._places.pop()
            scores_place.copy_(preds.detach())
            labels_place.copy_(labels)
            _hide_ignored(labels_place, reading)
        else:
            self._add_first(begin, preds, labels, reading)

    def _add_first(self, begin: int, preds: torch.Tensor, labels: torch.Tensor, reading: Reading) -> None:
        """Keep a batch for which there is no place yet, and make places for those that follow, if they are alike."""
        are_scores = reading.class_dim is not None and preds.ndim == 2 and not preds.dtype.is_complex
        if not begin and are_scores:
            room = MAX_SCORES // max(1, preds.shape[1])
            self._scores = zeros(room, preds.shape[1], dtype=torch.float32, device=preds.device)
            self._labels = zeros(room, dtype=torch.int64, device=preds.device)
        self._places = []
        if self._scores is None or self._labels is None:
            return
        own = slice(begin, min(self._num_samples, len(self._scores)))
        if own.start >= own.stop:
            return
        if not are_scores or preds.shape[1] != self._scores.shape[1]:
            self._labels[own].fill_(_NO_CLASS)  # nobody is to count them
            return
        count = own.stop - own.start
        self._scores[own].copy_(preds.detach()[:count])
        self._labels[own].copy_(labels[:count])
        _hide_ignored(self._labels[own], reading)
        self._reading = reading
        self._shape, self._places = preds.shape, self._places_after(own.stop, count)

    def _places_after(self, begin: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For the batches of `count` samples that follow, those that are kept whole."""
        assert self._scores is not None and self._labels is not None
        number = min(_PLACES, (len(self._scores) - begin) // count)
        following = slice(begin, begin + number * count)
        with torch.inference_mode(False):  # or nobody could write there after it
            scores, labels = self._scores[following].split(count), self._labels[following].split(count)
        return list(zip(scores, labels, strict=True))[::-1] if number else []

    def scores(self) -> Scores | None:
        """What was kept, None where nothing could be; waits for the device, once, and leaves nothing there."""
        if self._at_home is None and self._scores is not None and self._labels is not None:
            kept = slice(min(self._num_samples, len(self._scores)))
            self._at_home = Scores(self._scores[kept].cpu(), self._labels[kept].cpu(), self._num_samples)
            self._scores = self._labels = None
            self._places = []
        return self._at_home


def _hide_ignored(labels: torch.Tensor, reading: Reading) -> None:
    """Let labels that do not count be no class; most are none anyway."""
    if reading.ignored is not None and reading.ignored >= 0:
        labels.masked_fill_(labels == reading.ignored, _NO_CLASS)
