"""What is kept of an evaluation: the first scores in their order, within a bound."""

import pytest
import torch

from runmanager.tracking import scores as module
from runmanager.tracking.predictions import confusion
from runmanager.tracking.scores import Evaluation


def batches(count: int, size: int, classes: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(size, classes, generator=generator), torch.randint(classes, (size,), generator=generator))
        for _ in range(count)
    ]


def test_all_that_is_evaluated_is_kept_in_its_order() -> None:
    evaluation = Evaluation()
    given = batches(3, 4)
    for preds, labels in given:
        evaluation.add(preds.requires_grad_(), labels)
        with torch.no_grad():
            preds.zero_()  # a loop may write its next predictions into the same tensor
    kept = evaluation.scores()
    expected = batches(3, 4)
    assert kept is not None and kept.num_evaluated == 12
    assert torch.equal(kept.scores, torch.cat([preds for preds, _ in expected]))
    assert torch.equal(kept.labels, torch.cat([labels for _, labels in expected]))
    assert not kept.scores.requires_grad
    assert evaluation.scores() is kept


def test_batches_of_any_sizes_are_kept_in_their_order() -> None:
    evaluation = Evaluation()
    given = [*batches(70, 3), *batches(1, 2), *batches(2, 3), *batches(1, 5), *batches(1, 0), *batches(2, 5)]
    for place, (preds, labels) in enumerate(given):
        with torch.inference_mode(place % 2 == 0):
            evaluation.add(preds, labels)
    kept = evaluation.scores()
    assert kept is not None and kept.num_evaluated == len(kept.labels) == 70 * 3 + 2 + 6 + 15
    assert torch.equal(kept.scores, torch.cat([preds for preds, _ in given]))
    assert torch.equal(kept.labels, torch.cat([labels for _, labels in given]))


def test_no_more_is_kept_than_the_bound_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SCORES", 31)
    evaluation = Evaluation()
    for preds, labels in batches(4, 4):
        evaluation.add(preds, labels)
    kept = evaluation.scores()
    assert kept is not None and kept.num_evaluated == 16
    assert torch.equal(kept.scores, torch.cat([preds for preds, _ in batches(4, 4)])[:10])
    assert len(kept.labels) == 10


def test_samples_whose_scores_cannot_be_kept_have_no_class() -> None:
    evaluation = Evaluation()
    evaluation.add(torch.ones(2, 3), torch.tensor([1, 2]))
    evaluation.add(torch.ones(2, 4), torch.tensor([0, 0]))  # scores of other classes
    evaluation.add(torch.ones(1, 3), torch.tensor([0]))
    kept = evaluation.scores()
    assert kept is not None and kept.labels.tolist() == [1, 2, -1, -1, 0] and kept.num_evaluated == 5


def test_bfloat16_within_inference_mode_is_kept_as_float32() -> None:
    evaluation = Evaluation()
    with torch.inference_mode():
        for _ in range(2):
            evaluation.add(torch.ones(2, 3, dtype=torch.bfloat16), torch.tensor([0, 1], dtype=torch.int32))
    evaluation.add(torch.ones(1, 3), torch.tensor([2]))
    kept = evaluation.scores()
    assert kept is not None and kept.scores.dtype == torch.float32 and kept.labels.tolist() == [0, 1, 0, 1, 2]


def test_a_prediction_for_each_pixel_is_not_kept() -> None:
    evaluation = Evaluation()
    evaluation.add(torch.ones(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.int64))
    assert evaluation.scores() is None
    assert Evaluation().scores() is None


def test_samples_of_other_scores_than_the_first_batch_are_of_no_class() -> None:
    evaluation = Evaluation()
    evaluation.add(torch.eye(3), torch.tensor([0, 1, 2]))
    evaluation.add(torch.eye(4)[:2], torch.tensor([1, 1]))
    evaluation.add(torch.ones(2, 3, 4), torch.zeros(2, 4, dtype=torch.int64))
    evaluation.add(torch.eye(3)[:1], torch.tensor([0]))
    kept = evaluation.scores()
    assert kept is not None and kept.num_evaluated == 8
    assert kept.labels.tolist() == [0, 1, 2, -1, -1, -1, -1, 0]
    assert torch.equal(confusion(kept), torch.diag(torch.tensor([2, 1, 1])))


def test_the_loader_is_known_where_there_is_one() -> None:
    evaluation = Evaluation()
    assert evaluation.loader is None
    evaluation.takes_from([1])
    assert evaluation.loader == [1]
    evaluation.takes_from([2])
    assert evaluation.loader is None
