"""What scores say: which class was taken for which, and the samples whose true class was believed in least."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from runmanager.tracking.metrics.evaluation import Scores

__all__ = ["Prediction", "confusion", "least_believed", "num_known_and_right"]


@dataclass(frozen=True)
class Prediction:
    """The sample at `place` in the evaluation: its class, the one that was predicted, and the probability of each."""

    place: int
    label: int
    predicted: int
    label_probability: float
    probability: float

    @property
    def is_right(self) -> bool:
        return self.label == self.predicted


def confusion(scores: Scores) -> torch.Tensor:
    """How many samples of each class (rows) were taken for which (columns): (classes, classes), int64.

    Samples whose label is the number of no class are left out, as a loss leaves them out.
    """
    num_classes = scores.scores.shape[1]
    known = _known(scores)
    pairs = scores.labels[known] * num_classes + scores.scores[known].argmax(dim=1)
    return torch.bincount(pairs, minlength=num_classes**2).view(num_classes, num_classes)


def num_known_and_right(scores: Scores) -> tuple[int, int]:
    """How many samples have the number of a class as their label, and of how many of these that was predicted."""
    known = _known(scores)
    right = scores.scores[known].argmax(dim=1) == scores.labels[known]
    return len(right), int(right.sum())


def least_believed(scores: Scores, count: int) -> Sequence[Prediction]:
    """The `count` samples whose true class was given the least probability, the least one first."""
    places = _known(scores).nonzero().flatten()
    labels, chances = scores.labels[places], probabilities(scores.scores[places])
    of_labels = chances.gather(1, labels[:, None]).flatten()
    lowest = of_labels.argsort(stable=True)[:count]
    highest, predicted = chances[lowest].max(dim=1)
    columns = (places[lowest], labels[lowest], predicted, of_labels[lowest], highest)
    return [Prediction(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def probabilities(scores: torch.Tensor) -> torch.Tensor:
    """The probability of each class, (samples, classes): the softmax, unless the scores are probabilities already."""
    sums = scores.sum(dim=1)
    if len(scores) and bool((scores >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
        return scores
    return scores.nan_to_num().softmax(dim=1)


def _known(scores: Scores) -> torch.Tensor:
    return (scores.labels >= 0) & (scores.labels < scores.scores.shape[1])
