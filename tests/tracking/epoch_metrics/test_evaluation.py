"""Scores kept of an evaluation: the first ones in order, up to the limit."""

from typing import Any

import pytest
import torch

from runmanager.tracking.epoch_metrics import evaluation as module
from runmanager.tracking.epoch_metrics.evaluation import Evaluation, confusion_matrix
from runmanager.tracking.epoch_metrics.prediction_task import resolve_format


def add(evaluation: Evaluation, preds: torch.Tensor, labels: torch.Tensor, **options: Any) -> None:
    options = {"task": None, "class_dim": None, "ignore_index": -100} | options
    evaluation.add(preds, labels, resolve_format(preds, labels, **options))


def batches(count: int, size: int, classes: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(size, classes, generator=generator), torch.randint(classes, (size,), generator=generator))
        for _ in range(count)
    ]


def test_all_scores_are_kept_in_order() -> None:
    evaluation = Evaluation()
    given = batches(3, 4)
    for preds, labels in given:
        add(evaluation, preds.requires_grad_(), labels)
        with torch.no_grad():
            preds.zero_()  # a loop may write its next predictions into the same tensor
    kept = evaluation.scores()
    expected = batches(3, 4)
    assert kept is not None and kept.num_evaluated == 12
    assert torch.equal(kept.scores, torch.cat([preds for preds, _ in expected]))
    assert torch.equal(kept.labels, torch.cat([labels for _, labels in expected]))
    assert not kept.scores.requires_grad
    assert evaluation.scores() is kept


def test_batches_of_any_sizes_are_kept_in_order() -> None:
    evaluation = Evaluation()
    given = [*batches(70, 3), *batches(1, 2), *batches(2, 3), *batches(1, 5), *batches(1, 0), *batches(2, 5)]
    for place, (preds, labels) in enumerate(given):
        with torch.inference_mode(place % 2 == 0):
            add(evaluation, preds, labels)
    kept = evaluation.scores()
    assert kept is not None and kept.num_evaluated == len(kept.labels) == 70 * 3 + 2 + 6 + 15
    assert torch.equal(kept.scores, torch.cat([preds for preds, _ in given]))
    assert torch.equal(kept.labels, torch.cat([labels for _, labels in given]))


def test_scores_are_kept_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SCORES", 31)
    evaluation = Evaluation()
    for preds, labels in batches(4, 4):
        add(evaluation, preds, labels)
    kept = evaluation.scores()
    assert kept is not None and kept.num_evaluated == 16
    assert torch.equal(kept.scores, torch.cat([preds for preds, _ in batches(4, 4)])[:10])
    assert len(kept.labels) == 10


def test_samples_whose_scores_cannot_be_kept_have_label_minus_1() -> None:
    evaluation = Evaluation()
    add(evaluation, torch.ones(2, 3), torch.tensor([1, 2]))
    add(evaluation, torch.ones(2, 4), torch.tensor([0, 0]))  # another number of classes
    add(evaluation, torch.ones(1, 3), torch.tensor([0]))
    kept = evaluation.scores()
    assert kept is not None and kept.labels.tolist() == [1, 2, -1, -1, 0] and kept.num_evaluated == 5


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_binary_and_multilabel_predictions_are_not_kept(task: str) -> None:
    answers, labels = torch.ones(3, 3), torch.ones(3, 3, dtype=torch.int64)
    evaluation = Evaluation()
    add(evaluation, answers, labels, task=task)
    assert evaluation.scores() is None
    evaluation = Evaluation()
    for _ in range(2):
        add(evaluation, torch.eye(3), torch.tensor([0, 1, 2]))
    add(evaluation, answers, labels, task=task)  # in the shape of earlier scores
    kept = evaluation.scores()
    assert kept is not None and kept.labels.tolist() == [0, 1, 2, 0, 1, 2, -1, -1, -1]


def test_ignored_labels_become_minus_1() -> None:
    evaluation, labels = Evaluation(), torch.tensor([0, 1, 2])
    reading = resolve_format(torch.eye(3), labels, task=None, class_dim=None, ignore_index=1)
    for _ in range(3):
        evaluation.add(torch.eye(3), labels, reading)
    kept = evaluation.scores()
    assert kept is not None and kept.labels.tolist() == [0, -1, 2] * 3 and labels.tolist() == [0, 1, 2]


def test_bfloat16_within_inference_mode_is_kept_as_float32() -> None:
    evaluation = Evaluation()
    with torch.inference_mode():
        for _ in range(2):
            add(evaluation, torch.ones(2, 3, dtype=torch.bfloat16), torch.tensor([0, 1], dtype=torch.int32))
    add(evaluation, torch.ones(1, 3), torch.tensor([2]))
    kept = evaluation.scores()
    assert kept is not None and kept.scores.dtype == torch.float32 and kept.labels.tolist() == [0, 1, 0, 1, 2]


def test_per_pixel_predictions_are_not_kept() -> None:
    evaluation = Evaluation()
    add(evaluation, torch.ones(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.int64))
    assert evaluation.scores() is None
    assert Evaluation().scores() is None


def test_samples_with_another_shape_than_the_first_batch_have_label_minus_1() -> None:
    evaluation = Evaluation()
    add(evaluation, torch.eye(3), torch.tensor([0, 1, 2]))
    add(evaluation, torch.eye(4)[:2], torch.tensor([1, 1]))
    add(evaluation, torch.ones(2, 3, 4), torch.zeros(2, 4, dtype=torch.int64))
    add(evaluation, torch.eye(3)[:1], torch.tensor([0]))
    kept = evaluation.scores()
    assert kept is not None and kept.num_evaluated == 8
    assert kept.labels.tolist() == [0, 1, 2, -1, -1, -1, -1, 0]
    assert torch.equal(confusion_matrix(kept), torch.diag(torch.tensor([2, 1, 1])))


def test_the_loader_is_known_if_there_is_only_one() -> None:
    evaluation = Evaluation()
    assert evaluation.loader is None
    evaluation.add_loader([1])
    assert evaluation.loader == [1]
    evaluation.add_loader([2])
    assert evaluation.loader is None
