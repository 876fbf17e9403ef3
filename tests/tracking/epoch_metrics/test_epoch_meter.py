"""The epoch meter: means over samples without transfers, and errors for mismatched tensors."""

import math
import weakref
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runmanager.errors import TensorMismatchError
from runmanager.tracking.epoch_metrics import epoch_meter
from runmanager.tracking.epoch_metrics.epoch_meter import Averages, EpochMeter


def scores(*classes: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(classes), 3).float()


def test_batches_are_weighted_by_their_size() -> None:
    meter = EpochMeter()
    meter.add_loss(torch.tensor(1.0), 4)
    meter.add_loss(torch.tensor(4.0), 2)
    meter.add_predictions(scores(0, 1, 2, 0), torch.tensor([0, 1, 2, 1]))  # 3 of 4
    meter.add_predictions(scores(1, 1), torch.tensor([0, 2]))  # 0 of 2
    # By hand: (4 * 1 + 2 * 4) / 6 = 2, and 3 / 6; the mean of means would be 2.5 and 0.375.
    assert meter.averages() == Averages(samples=6, loss=2.0, accuracy=0.5)


def test_sums_are_kept_in_double_precision() -> None:
    meter = EpochMeter()
    meter.add_loss(torch.tensor(1.0), 2**24)
    for _ in range(64):
        meter.add_loss(torch.tensor(1.0), 1)  # in single precision, adding 1 to 2**24 changes nothing
    assert meter.averages().loss == 1.0
    half = EpochMeter()
    half.add_loss(torch.tensor(2.0, dtype=torch.float16), 60_000)  # the product overflows half precision
    assert half.averages().loss == 2.0
    number = EpochMeter()
    number.add_loss(0.1, 1)
    assert number.averages().loss == 0.1


def test_nothing_is_transferred_before_the_end() -> None:
    """Tensors on `meta` have no values, so reading one raises."""
    meter = EpochMeter()
    for _ in range(1000):
        meter.add_loss(torch.zeros((), device="meta"), 2)
        meter.add_predictions(torch.zeros(2, 3, device="meta"), torch.zeros(2, dtype=torch.int64, device="meta"))
    assert meter.samples == 2000
    with pytest.raises((NotImplementedError, RuntimeError)):
        meter.averages()


def test_untracked_metrics_are_none() -> None:
    assert EpochMeter().averages() == Averages(0, None, None)
    only_loss = EpochMeter()
    only_loss.add_loss(torch.tensor([0.5]), 3)
    assert only_loss.averages() == Averages(3, 0.5, None)
    only_predictions = EpochMeter()
    only_predictions.add_predictions(scores(0, 0), torch.tensor([0, 1]))
    assert only_predictions.averages() == Averages(2, None, 0.5)


def test_the_graph_of_a_step_is_released() -> None:
    loss = torch.tensor(2.0, requires_grad=True) * 1
    step = weakref.ref(loss)
    meter = EpochMeter()
    meter.add_loss(loss, 1)
    meter.add_predictions(torch.stack([loss, loss]).reshape(1, 2), torch.tensor([0]))
    del loss
    assert step() is None and meter.averages().loss == 2.0


def test_per_pixel_predictions_count_pixels_for_accuracy_and_images_for_throughput() -> None:
    preds = torch.zeros(2, 3, 4, 4)
    preds[:, 1] = 1.0
    labels = torch.ones(2, 4, 4, dtype=torch.int64)
    labels[0] = 0
    meter = EpochMeter()
    meter.add_loss(torch.tensor(1.0), 2)
    meter.add_predictions(preds, labels)
    assert meter.averages() == Averages(2, 1.0, 0.5)


def test_predictions_are_counted_over_many_steps_and_in_large_batches() -> None:
    meter, correct, count = EpochMeter(), 0, 0
    generator = torch.Generator().manual_seed(0)
    for size in (1, 30_000, 30_000, 7, 30_000, 200_000, 3, 70_000):  # below, above, and far above the capacity
        preds = torch.rand(size, 3, generator=generator)
        labels = torch.randint(3, (size,), generator=generator)
        meter.add_predictions(preds, labels)
        correct, count = correct + int((preds.argmax(dim=1) == labels).sum()), count + size
        assert meter.averages() == Averages(count, None, correct / count)


def test_predictions_may_reuse_the_same_memory() -> None:
    meter, preds, labels = EpochMeter(), torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    for chosen, labelled in ((0, 0), (1, 0), (2, 2)):
        preds.zero_()[:, chosen] = 1.0
        labels.fill_(labelled)
        meter.add_predictions(preds, labels)
    assert meter.averages() == Averages(12, None, 8 / 12)


def test_predictions_of_several_kinds_are_counted_together() -> None:
    meter = EpochMeter()
    for dtype, labels_dtype, classes in (
        (torch.float32, torch.int64, 3),
        (torch.bfloat16, torch.int64, 3),
        (torch.float32, torch.uint8, 3),
        (torch.float32, torch.int64, 5),
    ):
        preds = torch.eye(classes, dtype=dtype)[[1, 2, 1, 0]]
        for _ in range(3):
            meter.add_predictions(preds, torch.tensor([1, 2, 0, 0], dtype=labels_dtype))
    assert meter.averages() == Averages(48, None, 36 / 48)


@pytest.mark.parametrize("shape", [(8, 10), (100, 10), (128, 128), (1000, 10), (1638, 10)])
def test_many_small_batches_are_counted_by_one_thread(shape: tuple[int, int]) -> None:
    """From 32,768 numbers on, PyTorch's CPU operators use several threads."""
    sizes: list[int] = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket in (torch.ops.aten.argmax, torch.ops.aten.eq, torch.ops.aten.sum):
                sizes.append(args[0].numel())
            return func(*args, **(kwargs or {}))

    labels = torch.arange(shape[0]) % shape[1]
    meter, preds = EpochMeter(), torch.nn.functional.one_hot(labels, shape[1]).float()
    with Sizes():
        for _ in range(400):
            meter.add_predictions(preds, labels)
        assert meter.averages().accuracy == 1.0
    assert sizes and max(sizes) < 1 << 15


def test_small_batches_of_changing_sizes_allocate_no_buffers() -> None:
    made: list[int] = []

    class Allocations(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket is torch.ops.aten.zeros:
                made.append(math.prod(args[0]))
            return func(*args, **(kwargs or {}))

    meter, sizes = EpochMeter(), [1 + step % 7 for step in range(100)]
    preds, labels = torch.eye(3)[[0] * 7], torch.zeros(7, dtype=torch.int64)
    with Allocations():
        for size in sizes:
            meter.add_predictions(preds[:size], labels[:size])
    assert meter.averages() == Averages(sum(sizes), None, 1.0)
    assert len(made) == 2  # for the marks of correct and of ignored predictions; none per step


def test_predictions_within_and_after_inference_mode_are_counted_together() -> None:
    meter, preds, labels = EpochMeter(), torch.eye(3), torch.tensor([0, 1, 0])
    for is_inference in (True, True, False, False):
        with torch.inference_mode(is_inference):
            meter.add_predictions(preds, labels)
    assert meter.averages() == Averages(12, None, 8 / 12)


def test_without_samples_there_is_no_accuracy() -> None:
    meter = EpochMeter()
    meter.add_predictions(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    assert meter.averages().accuracy is None


def test_a_loss_of_several_numbers_is_refused() -> None:
    with pytest.raises(TensorMismatchError, match=r"one number a step, got shape \(4,\); take its mean"):
        EpochMeter().add_loss(torch.zeros(4), 4)


def test_batches_are_buffered_only_if_they_have_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """With batches of changing sizes, as of graphs or boxes, each step would create hundreds of tensors."""
    made = []
    buffer = epoch_meter._BatchBuffer
    init = buffer.__init__
    monkeypatch.setattr(buffer, "__init__", lambda self, *batch: (made.append(self), init(self, *batch))[1])
    meter = EpochMeter()
    for count in (1, 2, 1, 2, 3):
        meter.add_predictions(scores(*[1] * count), torch.tensor([1] * count))
    assert made == []
    for _ in range(1000):
        meter.add_predictions(scores(1), torch.tensor([0]))
    assert len(made) == 1 and len(made[0]._slots) <= 128
    assert meter.averages().accuracy == 9 / 1009
