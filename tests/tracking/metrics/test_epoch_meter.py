"""The meter: means over samples, counted without a transfer, and words for what does not belong together."""

import math
import weakref
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runmanager.errors import TensorMismatchError
from runmanager.tracking.metrics import correct_counter
from runmanager.tracking.metrics.epoch_meter import Averages, EpochMeter


def scores(*classes: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(classes), 3).float()


def test_a_smaller_last_batch_weighs_less() -> None:
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
        meter.add_loss(torch.tensor(1.0), 1)  # each would be lost beside 2**24 in single precision
    assert meter.averages().loss == 1.0
    half = EpochMeter()
    half.add_loss(torch.tensor(2.0, dtype=torch.float16), 60_000)  # the product overflows half precision
    assert half.averages().loss == 2.0
    number = EpochMeter()
    number.add_loss(0.1, 1)
    assert number.averages().loss == 0.1


def test_nothing_is_brought_home_before_the_end() -> None:
    """Tensors on `meta` have no values: whatever asks for one raises."""
    meter = EpochMeter()
    for _ in range(1000):
        meter.add_loss(torch.zeros((), device="meta"), 2)
        meter.add_predictions(torch.zeros(2, 3, device="meta"), torch.zeros(2, dtype=torch.int64, device="meta"))
    assert meter.samples == 2000
    with pytest.raises((NotImplementedError, RuntimeError)):
        meter.averages()


def test_what_was_never_tracked_is_none() -> None:
    assert EpochMeter().averages() == Averages(0, None, None)
    only_loss = EpochMeter()
    only_loss.add_loss(torch.tensor([0.5]), 3)
    assert only_loss.averages() == Averages(3, 0.5, None)
    only_predictions = EpochMeter()
    only_predictions.add_predictions(scores(0, 0), torch.tensor([0, 1]))
    assert only_predictions.averages() == Averages(2, None, 0.5)


def test_the_graph_of_a_step_is_let_go() -> None:
    loss = torch.tensor(2.0, requires_grad=True) * 1
    step = weakref.ref(loss)
    meter = EpochMeter()
    meter.add_loss(loss, 1)
    meter.add_predictions(torch.stack([loss, loss]).reshape(1, 2), torch.tensor([0]))
    del loss
    assert step() is None and meter.averages().loss == 2.0


def test_a_prediction_a_pixel_counts_pixels_for_the_accuracy_and_images_for_the_throughput() -> None:
    preds = torch.zeros(2, 3, 4, 4)
    preds[:, 1] = 1.0
    labels = torch.ones(2, 4, 4, dtype=torch.int64)
    labels[0] = 0
    meter = EpochMeter()
    meter.add_loss(torch.tensor(1.0), 2)
    meter.add_predictions(preds, labels)
    assert meter.averages() == Averages(2, 1.0, 0.5)


def test_predictions_are_counted_over_many_steps_and_in_large_ones() -> None:
    meter, correct, count = EpochMeter(), 0, 0
    generator = torch.Generator().manual_seed(0)
    for size in (1, 30_000, 30_000, 7, 30_000, 200_000, 3, 70_000):  # within, beyond, and far beyond the room there is
        preds = torch.rand(size, 3, generator=generator)
        labels = torch.randint(3, (size,), generator=generator)
        meter.add_predictions(preds, labels)
        correct, count = correct + int((preds.argmax(dim=1) == labels).sum()), count + size
        assert meter.averages() == Averages(count, None, correct / count)


def test_predictions_may_be_written_anew_into_the_same_memory() -> None:
    meter, preds, labels = EpochMeter(), torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    for chosen, labelled in ((0, 0), (1, 0), (2, 2)):
        preds.zero_()[:, chosen] = 1.0
        labels.fill_(labelled)
        meter.add_predictions(preds, labels)
    assert meter.averages() == Averages(12, None, 8 / 12)


def test_predictions_of_another_kind_are_counted_beside_the_ones_before() -> None:
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
def test_many_small_batches_are_one_threads_work(shape: tuple[int, int]) -> None:
    """Of 32,768 numbers PyTorch's operators on the CPU make the work of several threads."""
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


def test_small_batches_that_are_each_of_another_size_cost_no_room_of_their_own() -> None:
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
    assert len(made) == 2  # where the right and the ignored ones are marked, and no more a step


def test_predictions_of_an_evaluation_and_after_it_are_counted_together() -> None:
    meter, preds, labels = EpochMeter(), torch.eye(3), torch.tensor([0, 1, 0])
    for is_inference in (True, True, False, False):
        with torch.inference_mode(is_inference):
            meter.add_predictions(preds, labels)
    assert meter.averages() == Averages(12, None, 8 / 12)


def test_predictions_of_no_sample_have_no_accuracy() -> None:
    meter = EpochMeter()
    meter.add_predictions(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    assert meter.averages().accuracy is None


def test_a_loss_that_is_no_single_number_is_refused() -> None:
    with pytest.raises(TensorMismatchError, match=r"one number a step, got shape \(4,\); take its mean"):
        EpochMeter().add_loss(torch.zeros(4), 4)


def test_room_is_made_for_batches_of_one_size_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each batch is of another size, as of graphs or boxes, a step would else make hundreds of tensors."""
    made = []
    buffer = correct_counter._BatchBuffer
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
