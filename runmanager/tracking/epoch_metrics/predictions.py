"""Predictions from scores: the confusion matrix, and the samples whose true class is least probable."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from runmanager.tracking.epoch_metrics.evaluation import Scores

__all__ = ["Prediction", "confusion_matrix", "count_correct", "least_confident"]


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
