"""`fit` and `evaluate`: their history equals that of a loop written by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runmanager import DeviceDataLoader, evaluate, fit
from runmanager.errors import TensorMismatchError, UsageError
from runmanager.training.loop import train_epoch
from runmanager.training.step.stepper import Forward, Stepper


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))


def loader(count: int, *, batch_size: int = 16, seed: int = 1) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, 6, generator=generator)
    labels = torch.randint(3, (count,), generator=generator)
    return DataLoader(TensorDataset(points, labels), batch_size=batch_size)


def by_hand(epochs: int, lr: float, make: Callable[..., torch.optim.Optimizer]) -> tuple[nn.Module, list[Any]]:
    """A training loop as in tutorials, with sums over samples."""
    model = network()
    optimizer = make(model.parameters(), lr)
    history = []
    for _ in range(epochs):
        row = {}
        for prefix, batches in (("", loader(50)), ("val_", loader(21, seed=2))):
            total, correct, count = 0.0, 0, 0
            model.train(prefix == "")
            for inputs, labels in batches:
                with torch.set_grad_enabled(prefix == ""):
                    preds = model(inputs)
                    loss = F.cross_entropy(preds, labels)
                if prefix == "":
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                total += loss.item() * len(labels)
                correct += int((preds.argmax(1) == labels).sum())
                count += len(labels)
            row |= {f"{prefix}loss": total / count, f"{prefix}accuracy": correct / count}
        history.append(row)
    return model, history


@pytest.mark.parametrize(("lr", "make"), [(0.5, torch.optim.SGD), (0.01, torch.optim.Adam)])
def test_fit_returns_the_history_of_a_loop_by_hand(lr: float, make: Any) -> None:
    expected_model, expected = by_hand(3, lr, make)
    model = network()
    history = fit(3, lr, model, loader(50), loader(21, seed=2), opt_func=make)
    assert [list(row) for row in history] == [["loss", "accuracy", "val_loss", "val_accuracy"]] * 3
    for row, wanted in zip(history, expected, strict=True):
        assert row == pytest.approx(wanted, rel=1e-12)
    state = model.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in expected_model.state_dict().items())


def test_fit_without_validation_and_by_default_with_sgd() -> None:
    history = fit(1, 0.5, model := network(), loader(50))
    assert [list(row) for row in history] == [["loss", "accuracy"]]
    assert model.training
    assert fit(0, 0.5, network(), loader(50)) == []


def test_evaluate_changes_nothing() -> None:
    model = network().train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batches = loader(21)
    result = evaluate(model, batches)
    assert list(result) == ["val_loss", "val_accuracy"] and evaluate(model, batches) == result
    assert [module.training for module in model] == [True, False, True, True, True] and model.training
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert evaluate(model, loader(21, batch_size=4)) == pytest.approx(result, rel=1e-6), "batches must not matter"


def test_modes_are_restored_after_an_error() -> None:
    model = network().train()
    wrong = [(torch.rand(4, 7), torch.zeros(4, dtype=torch.int64))]
    with pytest.raises(TensorMismatchError, match="in_features=7"):
        evaluate(model, wrong)
    assert all(module.training for module in model.modules())
    with pytest.raises(TensorMismatchError, match="in_features=7"):
        fit(1, 0.1, model, wrong)


def test_device_loaders_and_frozen_parameters() -> None:
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    last = model[4].weight.clone()
    fit(1, 0.5, model, DeviceDataLoader(loader(50), "cpu"), DeviceDataLoader(loader(21), "cpu"))
    assert torch.equal(model[0].weight, before) and not torch.equal(model[4].weight, last)


def test_an_empty_loader_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one batch, got none"):
        evaluate(network(), [])
    with pytest.raises(UsageError, match="at least one batch, got none"):
        fit(1, 0.1, network(), [])


def test_track_is_called_after_the_step() -> None:
    model, order = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer.register_step_post_hook(lambda *_: order.append("step"))
    train_epoch(
        Stepper(Forward(model.eval()), optimizer),
        loader(20),
        track=lambda loss, preds, labels: order.append(len(labels)),
        after_step=lambda: order.append("schedule"),
    )
    assert order == ["step", "schedule", 16, "step", "schedule", 4]
    assert model.training
