"""Losses: what they accept, pieces of a batch with unequal weights, outputs and labels of each kind."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from runmanager.errors import ConfigurationError, DatasetError, TensorMismatchError
from runmanager.training.criteria import Loss, build_loss
from runmanager.training.datasets.array_dataset import ArrayDataset
from runmanager.training.datasets.registry import Data
from runmanager.training.step.micro_batches import MicroBatches
from runmanager.training.step.stepper import Forward, Stepper

OWN = """
import torch

def squared(factor=1.0):
    return lambda preds, labels: factor * (preds - labels).square().mean()

def of_three():
    return lambda preds, labels, more: preds.sum()

class Trained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, preds, labels):
        return (self.scale * (preds - labels)).mean()

def failing(size):
    raise ValueError(f"no loss of {size}")

def number():
    return 3
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"_target_": "torch.nn.MSELos"}, "torch.nn has no 'MSELos'; did you mean 'MSELoss'"),
        ({"_target_": "torch.nn.MSELoss", "smoothing": 1}, "`loss.smoothing` must be an argument of torch.nn.MSELoss"),
        ({"_target_": "torch.nn.MSELoss", "reduction": "sum"}, "`loss.reduction` must be mean, got sum; an epoch's"),
        ({"_target_": "torch.nn.Linear", "in_features": 2, "out_features": 2}, "without weights, which no optimiser"),
        ({"_target_": "torch.nn.ReLU"}, "make a loss of predictions and labels, got ReLU: too many positional"),
        ({"_target_": "torch.nn.TripletMarginLoss"}, "make a loss of predictions and labels, got TripletMarginLoss"),
        ({"_target_": "own_losses.of_three"}, "make a loss of predictions and labels"),
        ({"_target_": "own_losses.Trained"}, "make a loss without weights, which no optimiser would train"),
        (
            {"_target_": "own_losses.failing", "size": 3},
            "must have settings that own_losses.failing takes, got ValueEr",
        ),
        ({"_target_": "own_losses.number"}, "must make a loss, which is called with predictions and labels, got a int"),
    ],
)
def test_what_is_no_mean_loss_of_a_batch_is_refused(own_module: Any, options: dict[str, Any], message: str) -> None:
    own_module("own_losses", OWN)
    with pytest.raises(ConfigurationError, match=message):
        build_loss(options)


def test_shapes_that_would_be_broadcast_are_aligned_or_refused(own_module: Any) -> None:
    own_module("own_losses", OWN)
    preds, labels = torch.rand(4, 1), torch.rand(4)
    for options in ({"_target_": "torch.nn.MSELoss"}, {"_target_": "own_losses.squared"}):
        value, aligned = build_loss(options)(preds, labels)
        assert value.item() == F.mse_loss(preds[:, 0], labels).item()
        assert aligned.shape == labels.shape
    with pytest.raises(
        TensorMismatchError, match=r"with MSELoss, got \(4, 3\) and \(4,\); give the network one output"
    ):
        Loss(nn.MSELoss())(torch.rand(4, 3), labels)
    with pytest.raises(TensorMismatchError, match=r"must give one number a batch, got shape \(4,\)"):
        Loss(lambda preds, labels: preds - labels)(labels, labels)


def test_numbers_of_half_precision_or_whole_ones_are_compared_in_full_precision() -> None:
    preds, labels = torch.tensor([0.1, 1000.5]), torch.tensor([0, 1001])
    value, _ = Loss(nn.L1Loss())(preds.to(torch.bfloat16), labels)
    assert value.dtype == torch.float32
    assert value.item() == F.l1_loss(preds.to(torch.bfloat16).float(), labels.float()).item()
    double, _ = Loss(nn.L1Loss())(preds.double(), labels)
    assert double.dtype == torch.float64


WEIGHTS = torch.tensor([0.1, 1.0, 3.0])


@pytest.mark.parametrize(
    ("loss", "masks"),
    [
        (nn.CrossEntropyLoss(), False),
        (nn.CrossEntropyLoss(ignore_index=2), False),
        (nn.CrossEntropyLoss(ignore_index=2, label_smoothing=0.2), True),
        (nn.CrossEntropyLoss(weight=WEIGHTS, ignore_index=0, label_smoothing=0.1), True),
        (nn.CrossEntropyLoss(weight=WEIGHTS), False),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 5])
def test_pieces_of_labels_with_unequal_weights_give_the_gradient_of_the_whole_batch(
    loss: nn.Module, masks: bool, size: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(11, 2, 4, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (11, 4, 4) if masks else (11,), generator=generator)
    labels[:3] = loss.ignore_index  # whole pieces are ignored

    def trained(pieces: MicroBatches) -> tuple[Tensor, list[Tensor]]:
        torch.manual_seed(1)
        layers = [nn.Conv2d(2, 3, 1)] if masks else [nn.Flatten(), nn.Linear(32, 3)]
        network = nn.Sequential(*layers).double()
        stepper = Stepper(
            Forward(network, Loss(loss.double())), torch.optim.SGD(network.parameters(), lr=0.1), pieces=pieces
        )
        value, _ = stepper.train(images, labels)
        return value, [each.detach() for each in network.parameters()]

    value, weights = trained(MicroBatches())
    in_pieces, others = trained(MicroBatches(size, weigh=Loss(loss).num_counted))
    assert in_pieces.item() == pytest.approx(value.item(), rel=1e-12)
    for one, other in zip(weights, others, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


def data(labels: Tensor, num_classes: int = 0) -> Data:
    both = ArrayDataset(torch.rand(len(labels), 2), labels)
    return Data(both, both, (2,), num_classes, tuple(labels.shape[1:]))


@pytest.mark.parametrize(
    ("loss", "labels", "num_classes", "outputs"),
    [
        (nn.CrossEntropyLoss(), torch.tensor([0, 6]), 7, 7),
        (nn.CrossEntropyLoss(), torch.rand(2, 5), 0, 5),  # class probabilities
        (nn.CrossEntropyLoss(), torch.zeros(2, 8, 8).long(), 3, 3),
        (nn.MSELoss(), torch.tensor([0, 6]), 7, 1),
        (nn.MSELoss(), torch.rand(2, 4), 0, 4),
        (nn.L1Loss(), torch.rand(2, 3, 8, 8), 0, 3),
        (nn.BCEWithLogitsLoss(), torch.tensor([0, 1]), 2, 1),
        (nn.BCEWithLogitsLoss(), torch.ones(2, 6).long(), 2, 6),
        (nn.BCEWithLogitsLoss(), torch.rand(2, 8, 8), 0, 1),
        (nn.MultiMarginLoss(), torch.tensor([0, 6]), 7, 7),
    ],
)
def test_a_network_gets_as_many_outputs_as_loss_and_labels_need(
    loss: nn.Module, labels: Tensor, num_classes: int, outputs: int
) -> None:
    assert Loss(loss).num_outputs(data(labels, num_classes)) == outputs


def test_labels_that_are_no_yes_or_no_are_refused() -> None:
    loss = Loss(nn.BCEWithLogitsLoss())
    with pytest.raises(ConfigurationError, match="0 or 1, got class numbers of 7 classes; use `loss=cross_entropy`"):
        loss.num_outputs(data(torch.tensor([0, 6]), 7))
    with pytest.raises(DatasetError, match="must be 0 or 1 with this loss, or between, got -1 to 1"):
        loss.num_outputs(data(torch.tensor([-1.0, 1.0])))


def test_metrics_of_yes_or_no_get_probabilities_and_whole_labels() -> None:
    # torchmetrics would take logits that happen to lie in [0, 1] for probabilities.
    preds, labels = Loss(nn.BCEWithLogitsLoss()).for_metrics(torch.tensor([0.2, 0.4]), torch.tensor([1.0, 0.0]))
    assert preds.min() > 0.5
    assert labels.tolist() == [1, 0] and not labels.is_floating_point()


def test_a_dataset_of_tensors_keeps_the_type_of_its_labels() -> None:
    from runmanager.training.datasets.array_dataset import as_arrays

    for labels, kept in ((torch.rand(4, 2), torch.float32), (torch.ones(4, 2).bool(), torch.int64)):
        converted = as_arrays(TensorDataset(torch.rand(4, 3), labels))
        assert isinstance(converted, ArrayDataset)
        assert torch.equal(converted[1][1], labels[1].to(kept)) and converted[1][1].dtype == kept
