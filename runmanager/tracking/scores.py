"""What an evaluation said of its samples: kept on the device up to a bound, and brought home when it is asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from runmanager.tracking.losses import zeros

__all__ = ["MAX_SCORES", "Evaluation", "Scores"]

MAX_SCORES = 1 << 20
"""Numbers that are kept of an evaluation: 4 MiB, or 100,000 samples of ten classes."""

_NO_CLASS = -1


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

    A batch costs two copies on the device, and nothing waits for it but `scores`, which is asked for when all of them
    are there.
    """

    def __init__(self) -> None:
        self._loaders: list[Iterable[Any]] = []
        self._scores: torch.Tensor | None = None
        self._labels: torch.Tensor | None = None
        self._num_samples = 0
        self._at_home: Scores | None = None

    @property
    def loader(self) -> Iterable[Any] | None:
        """What gave the samples; None where several did, or nobody knows."""
        return self._loaders[0] if len(self._loaders) == 1 else None

    def takes_from(self, loader: Iterable[Any]) -> None:
        """The samples that follow are those of `loader`."""
        self._loaders.append(loader)

    def add(self, preds: torch.Tensor, labels: torch.Tensor) -> None:
        """Keep a batch: scores (batch, classes) and class numbers (batch,). Others are counted, and not kept."""
        begin, self._num_samples = self._num_samples, self._num_samples + len(labels)
        if preds.ndim != 2 or preds.dtype.is_complex:
            return
        if self._scores is None or self._labels is None:
            if begin:
                return
            room = MAX_SCORES // max(1, preds.shape[1])
            self._scores = zeros(room, preds.shape[1], dtype=torch.float32, device=preds.device)
            # The number of no class, for the places of batches that are not kept: nobody is to count these.
            self._labels = zeros(room, dtype=torch.int64, device=preds.device).fill_(_NO_CLASS)
        fitting = max(0, min(len(labels), len(self._scores) - begin))
        if fitting and preds.shape[1] == self._scores.shape[1]:
            self._scores[begin : begin + fitting].copy_(preds.detach()[:fitting])
            self._labels[begin : begin + fitting].copy_(labels[:fitting])

    def scores(self) -> Scores | None:
        """What was kept, None where nothing could be; waits for the device, once, and leaves nothing there."""
        if self._at_home is None and self._scores is not None and self._labels is not None:
            kept = slice(min(self._num_samples, len(self._scores)))
            self._at_home = Scores(self._scores[kept].cpu(), self._labels[kept].cpu(), self._num_samples)
            self._scores = self._labels = None
        return self._at_home
