"""Tasks of predictions: each task's accuracy as counted by hand, and clear errors for ambiguous shapes."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from runmanager.errors import TensorMismatchError, UsageError
from runmanager.tracking.epoch_metrics.epoch_meter import Averages, EpochMeter

LOGITS = torch.tensor([2.0, -1.0, 0.0, 3.0])  # 1, 0, 0, 1
TOKENS = F.one_hot(torch.tensor([[1, 2, 0], [2, 2, 2]]), 3).float()  # (batch, time, classes), as many times as classes


def accuracy(preds: torch.Tensor, labels: torch.Tensor, **options: Any) -> float | None:
    meter = EpochMeter()
    meter.add_predictions(preds, labels, **options)
    return meter.averages().accuracy


def ints(*values: Any) -> torch.Tensor:
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("preds", "labels", "options", "expected"),
    [
        (LOGITS, ints(1, 0, 1, 0), {"task": "binary"}, 2 / 4),
        (LOGITS[:, None], ints(1, 0, 1, 0), {"task": "binary"}, 2 / 4),
        (LOGITS[:, None], ints(1, 0, 1, 0)[:, None].bool(), {"task": "binary"}, 2 / 4),
        (LOGITS, ints(1, 0, 1, 0)[:, None].float(), {"task": "binary", "class_dim": 1}, 2 / 4),
        (LOGITS[:, None], ints(1, 0, -100, 1), {"task": "binary"}, 3 / 3),
        (LOGITS[:, None], ints(1, 1, 0, -100).float(), {"task": "binary"}, 2 / 3),
        (LOGITS[:, None].bfloat16(), ints(1, 0, 0, 1).to(torch.uint8), {"task": "binary"}, 4 / 4),
        (LOGITS.view(1, 1, 2, 2), ints(1, 0, 1, 1).view(1, 2, 2), {"task": "binary"}, 3 / 4),
        (LOGITS.view(2, 2), ints(1, 0, 0, 0).view(2, 2), {"task": "multilabel"}, 3 / 4),
        (LOGITS.view(2, 2), ints(0.9, 0.1, 0.2, 0.4).view(2, 2), {"task": "multilabel"}, 3 / 4),
        (LOGITS.view(2, 2), ints(1, 7, 0, 0).view(2, 2), {"task": "multilabel", "ignore_index": 7}, 2 / 3),
        (torch.eye(3), ints(0, 1, 1), {}, 2 / 3),
        (torch.eye(3), ints(0, -100, 1), {}, 1 / 2),
        (torch.eye(3), ints(0, 255, 1).to(torch.uint8), {"ignore_index": 255}, 1 / 2),
        (torch.eye(3), ints(0, 0, 2), {"ignore_index": 0}, 1 / 1),  # one prediction is the ignored class
        (torch.eye(3), ints(0, 0, 2).int(), {"task": "multiclass"}, 2 / 3),
        (torch.eye(3), ints(0.0, 0.0, 2.0), {"task": "multiclass"}, 2 / 3),
        (torch.eye(200)[[156, 7]], ints(156, 7).to(torch.uint8), {}, 2 / 2),  # 156 is -100 in eight bits
        (torch.eye(2), ints(0, 1).bool(), {}, 2 / 2),
        (TOKENS, ints([1, 2, 0], [2, 2, 0]), {"class_dim": -1}, 5 / 6),
        (TOKENS, ints([1, 2, 0], [2, 2, 0]), {"class_dim": 2}, 5 / 6),
        (TOKENS[:1], ints([[2, 0, 0]])[0], {"class_dim": 1}, 2 / 3),  # the time at which each class scores most
        (TOKENS, ints([1, 0, -100], [2, -100, -100]), {"class_dim": -1}, 2 / 3),
        (TOKENS[:, :2], ints([1, 2], [2, 0]), {"class_dim": -1, "task": "multiclass"}, 3 / 4),
        (TOKENS[:, :2].transpose(1, 2), ints([1, 2], [2, 0]), {}, 3 / 4),
    ],
)
def test_accuracy_is_the_share_of_correct_labels_among_those_that_count(
    preds: torch.Tensor, labels: torch.Tensor, options: dict[str, Any], expected: float
) -> None:
    meter = EpochMeter()
    for _ in range(300):  # counted directly, buffered, and beyond the buffer
        meter.add_predictions(preds, labels, **options)
    assert meter.averages() == Averages(300 * len(labels), None, expected)


def test_batches_of_many_kinds_are_counted_together() -> None:
    generator = torch.Generator().manual_seed(0)
    meter, right, counted = EpochMeter(), 0, 0
    for step in range(60):
        size = int(torch.randint(1, 400, (), generator=generator)) * (50 if step % 20 == 0 else 1)
        preds = torch.randn(size, 7, 5, generator=generator)
        labels = torch.randint(5, (size, 7), generator=generator)
        labels[torch.rand(size, 7, generator=generator) < 0.3] = -100
        if step % 3 == 0:
            preds, labels = preds[:, :, 0], labels.clamp(max=1)
            meter.add_predictions(preds, labels, task="multilabel")
            chosen = (preds > 0).long()
        else:
            meter.add_predictions(preds, labels, class_dim=-1)
            chosen = preds.argmax(dim=-1)
        right += int((chosen == labels).sum())
        counted += int((labels != -100).sum())
    assert meter.averages().accuracy == right / counted


@pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
def test_without_labels_that_count_there_is_no_accuracy(task: Any) -> None:
    labels = torch.full((4, 2) if task == "multilabel" else (4,), -100)
    preds = torch.zeros(4, 1 if task == "binary" else 2)
    assert accuracy(preds, labels, task=task) is None


@pytest.mark.parametrize(
    ("preds", "labels", "options", "message"),
    [
        ((4, 1), (4,), {}, r"\(4, 1\) and labels \(4,\).*task='binary'"),
        ((4, 1), (4, 1), {}, r"\(4, 1\) and labels \(4, 1\).*task='binary'"),
        ((4,), (4,), {}, r"\(4,\) and labels \(4,\).*task='binary'"),
        ((4, 1, 8, 8), (4, 8, 8), {}, r"task='binary'"),
        ((4, 8, 1), (4, 8), {}, r"task='binary'"),
        ((4, 1), (4,), {"task": "multiclass"}, r"task='binary'"),
        ((3, 3), (3, 3), {}, r"\(3, 3\) and labels \(3, 3\).*task='multilabel'.*argmax"),
        ((4, 7, 5), (4, 7), {}, r"\(4, 7, 5\) and labels \(4, 7\).*class_dim=-1"),
        ((4, 7, 5), (4, 7), {"task": "multiclass"}, r"class_dim=-1"),
        ((4, 7, 7), (4, 7), {}, r"\(4, 7, 7\) and labels \(4, 7\).*class_dim=1 or class_dim=2"),
        ((4, 7, 7), (4, 7), {"task": "multiclass"}, r"class_dim=1 or class_dim=2"),
        ((4, 6, 5, 6), (4, 6, 6), {}, r"class_dim=2"),
        ((4, 3), (4,), {"task": "binary"}, r"\(4, 3\) and labels \(4,\).*task='multiclass'"),
        ((4, 3), (4,), {"task": "multilabel"}, r"\(4, 3\) and labels \(4,\)"),
        ((4,), (4,), {"task": "multilabel"}, r"task='binary'"),
        ((4, 7, 5), (4, 7), {"class_dim": 1}, r"`class_dim` must be.*got 1 .*\(4, 7, 5\) and labels \(4, 7\)"),
        ((4, 3), (4,), {"class_dim": 0}, r"`class_dim` must be.*got 0"),
        ((4, 3), (4,), {"class_dim": 2}, r"`class_dim` must be.*got 2"),
        ((4, 3), (4,), {"class_dim": -2}, r"`class_dim` must be.*got -2"),
        ((4, 3), (4,), {"class_dim": True}, r"`class_dim` must be.*got True"),
        ((4, 3), (4, 3), {"task": "multilabel", "class_dim": -1}, r"`class_dim` must be left out.*got -1"),
        ((4, 3), (4,), {"task": "regression"}, r"multiclass, binary or multilabel, got 'regression'"),
        ((4, 3), (4,), {"ignore_index": None}, r"`ignore_index` must be a whole number, got None"),
    ],
)
def test_ambiguous_shapes_are_refused_with_a_remedy(
    preds: tuple[int, ...], labels: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        accuracy(torch.zeros(preds), torch.zeros(labels, dtype=torch.int64), **options)


@pytest.mark.parametrize("labels", [torch.zeros(4), torch.zeros(4, 3)])
def test_labels_that_are_not_class_numbers_need_a_task(labels: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=r"task.*samples="):
        accuracy(torch.zeros(4, 3), labels)


@pytest.mark.parametrize(
    ("preds", "labels", "message"),
    [
        (torch.zeros(4), torch.zeros(5), r"\(4,\) and labels \(5,\)"),
        (torch.zeros(4, 3), torch.zeros(5), r"scores \(batch, classes\).*\(4, 3\) and labels \(5,\)"),
        (torch.zeros(4, 3), torch.zeros(4, 1), r"\(4, 3\) and labels \(4, 1\)"),
        (torch.zeros(4, 3), torch.tensor(1), r"\(4, 3\) and labels \(\)"),
        (torch.zeros(4, 3), torch.zeros(4, device="meta"), r"preds on cpu and labels on meta.*labels\.to\('cpu'\)"),
    ],
)
def test_mismatched_predictions_and_labels_are_refused(preds: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(TensorMismatchError, match=message):
        accuracy(preds, labels.long())
