"""What scores say, against counts and probabilities worked out by hand and by scikit-learn."""

import pytest
import torch
from sklearn.metrics import confusion_matrix

from runmanager.tracking.metrics.evaluation import Scores
from runmanager.tracking.metrics.predictions import confusion, least_believed, num_known_and_right


def some(count: int = 200, classes: int = 5) -> Scores:
    generator = torch.Generator().manual_seed(3)
    return Scores(
        torch.randn(count, classes, generator=generator),
        torch.randint(classes, (count,), generator=generator),
        count,
    )


def test_the_confusion_matrix_is_scikit_learns() -> None:
    scores = some()
    theirs = confusion_matrix(scores.labels.numpy(), scores.scores.argmax(dim=1).numpy(), labels=range(5))
    assert confusion(scores).tolist() == theirs.tolist()


def test_labels_that_stand_for_no_class_are_left_out() -> None:
    scores = Scores(torch.eye(3)[[0, 1, 2, 2]], torch.tensor([0, -100, 1, 7]), 4)
    assert confusion(scores).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert [each.place for each in least_believed(scores, 9)] == [2, 0]
    assert num_known_and_right(scores) == (2, 1)


def test_to_count_the_right_ones_takes_no_matrix() -> None:
    scores = Scores(torch.zeros(2, 1 << 20), torch.tensor([0, 5]), 2)  # of which a matrix would take 8 TiB
    assert num_known_and_right(scores) == (2, 1)


def test_the_least_believed_comes_first() -> None:
    # Scores of log(1), log(2), … have probabilities of so many parts.
    scores = Scores(torch.tensor([[1.0, 3.0], [3.0, 1.0], [1.0, 9.0]]).log(), torch.tensor([0, 0, 0]), 3)
    found = least_believed(scores, 2)
    assert [(each.place, each.label, each.predicted, each.is_right) for each in found] == [
        (2, 0, 1, False),
        (0, 0, 1, False),
    ]
    assert [each.label_probability for each in found] == pytest.approx([0.1, 0.25])
    assert [each.probability for each in found] == pytest.approx([0.9, 0.75])
    assert least_believed(scores, 3)[-1].is_right


@pytest.mark.parametrize("of", [torch.Tensor.softmax, torch.Tensor.log_softmax])
def test_probabilities_and_their_logarithms_are_scores_too(of: object) -> None:
    scores = some()
    given = Scores(of(scores.scores, dim=1), scores.labels, scores.num_evaluated)  # type: ignore[operator]
    ours, theirs = least_believed(scores, 5), least_believed(given, 5)
    assert [each.place for each in ours] == [each.place for each in theirs]
    assert [each.probability for each in ours] == pytest.approx([each.probability for each in theirs])


def test_scores_that_are_no_numbers_are_borne() -> None:
    scores = Scores(torch.tensor([[float("nan")] * 2, [float("inf"), 0.0]]), torch.tensor([0, 1]), 2)
    assert int(confusion(scores).sum()) == 2
    assert all(0 <= each.probability <= 1 for each in least_believed(scores, 2))
