"""Confusion matrix and least confident predictions, compared with hand-computed values and scikit-learn."""

import pytest
import torch
from sklearn import metrics

from runmanager.tracking.epoch_metrics.evaluation import Scores, confusion_matrix, count_correct, least_confident


def random_scores(count: int = 200, classes: int = 5) -> Scores:
    generator = torch.Generator().manual_seed(3)
    return Scores(
        torch.randn(count, classes, generator=generator),
        torch.randint(classes, (count,), generator=generator),
        count,
    )


def test_confusion_matrix_equals_scikit_learns() -> None:
    scores = random_scores()
    theirs = metrics.confusion_matrix(scores.labels.numpy(), scores.scores.argmax(dim=1).numpy(), labels=range(5))
    assert confusion_matrix(scores).tolist() == theirs.tolist()


def test_labels_that_are_not_class_numbers_are_left_out() -> None:
    scores = Scores(torch.eye(3)[[0, 1, 2, 2]], torch.tensor([0, -100, 1, 7]), 4)
    assert confusion_matrix(scores).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert [each.index for each in least_confident(scores, 9)] == [2, 0]
    assert count_correct(scores) == (2, 1)


def test_count_correct_builds_no_matrix() -> None:
    scores = Scores(torch.zeros(2, 1 << 20), torch.tensor([0, 5]), 2)  # a matrix would take 8 TiB
    assert count_correct(scores) == (2, 1)


def test_least_confident_prediction_comes_first() -> None:
    # Scores log(1), log(2), … have probabilities in the ratio 1 : 2 : ….
    scores = Scores(torch.tensor([[1.0, 3.0], [3.0, 1.0], [1.0, 9.0]]).log(), torch.tensor([0, 0, 0]), 3)
    found = least_confident(scores, 2)
    assert [(each.index, each.label, each.predicted, each.is_right) for each in found] == [
        (2, 0, 1, False),
        (0, 0, 1, False),
    ]
    assert [each.label_probability for each in found] == pytest.approx([0.1, 0.25])
    assert [each.probability for each in found] == pytest.approx([0.9, 0.75])
    assert least_confident(scores, 3)[-1].is_right


@pytest.mark.parametrize("of", [torch.Tensor.softmax, torch.Tensor.log_softmax])
def test_probabilities_and_log_probabilities_are_accepted_as_scores(of: object) -> None:
    scores = random_scores()
    given = Scores(of(scores.scores, dim=1), scores.labels, scores.num_evaluated)  # type: ignore[operator]
    ours, theirs = least_confident(scores, 5), least_confident(given, 5)
    assert [each.index for each in ours] == [each.index for each in theirs]
    assert [each.probability for each in ours] == pytest.approx([each.probability for each in theirs])


def test_nan_and_infinite_scores_are_accepted() -> None:
    scores = Scores(torch.tensor([[float("nan")] * 2, [float("inf"), 0.0]]), torch.tensor([0, 1]), 2)
    assert int(confusion_matrix(scores).sum()) == 2
    assert all(0 <= each.probability <= 1 for each in least_confident(scores, 2))
