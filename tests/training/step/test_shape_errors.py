"""Errors of a batch that does not fit the network: which tensor is wrong, and what to change."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runmanager.errors import TensorMismatchError
from runmanager.training.step.stepper import explain_shape_errors

LABELS = torch.tensor([0, 1, 2, 0])


def message_of(network: nn.Module, images: torch.Tensor, labels: torch.Tensor = LABELS) -> str:
    with pytest.raises(TensorMismatchError) as raised, explain_shape_errors(network, images, labels):
        F.cross_entropy(network(images), labels)
    assert raised.value.__cause__ is not None, "PyTorch's own words stay within reach"
    return str(raised.value)


def test_wrong_channels() -> None:
    network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 3))
    assert message_of(network, torch.rand(4, 1, 8, 8)) == (
        "The images must have 3 channels for the network's first layer (0), got 1 (images (4, 1, 8, 8)); "
        "build that layer with in_channels=1."
    )


def test_wrong_features() -> None:
    assert message_of(nn.Sequential(nn.Flatten(), nn.Linear(10, 3)), torch.rand(4, 1, 3, 3)) == (
        "A sample must have 10 values for the network's first layer (1), got 9 (images (4, 1, 3, 3)); "
        "build that layer with in_features=9."
    )


def test_images_that_are_not_flat() -> None:
    assert message_of(nn.Linear(16, 3), torch.rand(4, 1, 4, 4)).endswith("begin the network with nn.Flatten().")


@pytest.mark.parametrize("labels", [torch.tensor([0, 1, 2, 3]), torch.tensor([0, -1, 2, 1])])
def test_labels_out_of_range(labels: torch.Tensor) -> None:
    assert message_of(nn.Linear(5, 3), torch.rand(4, 5), labels) == (
        f"The labels must be class numbers below the number of classes, got {labels.min()} to {labels.max()} where the "
        "network's last layer has 3 outputs; give the network as many outputs as there are classes, and count classes "
        "from 0."
    )


@pytest.mark.parametrize(
    ("labels", "got"),
    [
        (LABELS.float(), r"torch.float32 of shape (4,)"),
        (LABELS.to(torch.int32), r"torch.int32 of shape (4,)"),
        (LABELS.reshape(4, 1), r"torch.int64 of shape (4, 1)"),
    ],
)
def test_labels_that_are_not_class_numbers(labels: torch.Tensor, got: str) -> None:
    assert f"got {got}; convert them" in message_of(nn.Linear(5, 3), torch.rand(4, 5), labels)


def test_too_few_labels() -> None:
    words = "A batch must have one label an image, got 3 labels and 4 images."
    assert message_of(nn.Linear(5, 3), torch.rand(4, 5), LABELS[:3]) == words


@pytest.mark.parametrize("name", ["images", "labels"])
def test_wrong_devices(name: str) -> None:
    batch = {"images": torch.rand(4, 5), "labels": LABELS}
    batch[name] = batch[name].to("meta")
    with pytest.raises(TensorMismatchError) as raised, explain_shape_errors(nn.Linear(5, 3), **batch):
        raise RuntimeError("Expected all tensors to be on the same device")
    words = (
        f"The {name} must be on the device of the network's parameters, cpu, got meta; move them with {name}.to('cpu')."
    )
    assert str(raised.value) == words


class Failing(nn.Module):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.layer = nn.Linear(5, 3)

    def forward(self, images: torch.Tensor) -> Any:
        raise self.error


@pytest.mark.parametrize(
    "error", [RuntimeError("another fault"), torch.OutOfMemoryError("out of memory"), KeyError("x"), ValueError()]
)
def test_errors_with_another_cause_are_unchanged(error: Exception) -> None:
    network, images = Failing(error), torch.rand(4, 5)
    with pytest.raises(type(error)) as raised, explain_shape_errors(network, images, LABELS):
        network(images)
    assert raised.value is error


def test_out_of_memory_is_not_converted() -> None:
    images = torch.rand(4, 6)  # does not fit either, but is not the cause
    with pytest.raises(torch.OutOfMemoryError), explain_shape_errors(nn.Linear(5, 3), images, LABELS):
        raise torch.OutOfMemoryError("out of memory")
