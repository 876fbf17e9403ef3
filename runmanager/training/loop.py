"""The training loop: an epoch of training, an epoch of evaluation, and both together as `fit`.

```
for epoch in epochs:
    train mode; for each batch: a step (forward, loss, backward, update), track
    eval mode; for each batch, without gradients: forward, loss, track
```
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from runmanager.errors import UsageError
from runmanager.tracking.device.transfer import to_device
from runmanager.tracking.epoch_metrics.epoch_meter import EpochMeter
from runmanager.training.criteria import Loss
from runmanager.training.step.stepper import Forward, Stepper

Track = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Takes a batch's mean loss, predictions (batch, …) and labels (batch, …)."""


def tracker(track: Callable[..., None], loss: Loss) -> Track:
    """Return a function that passes on what `loss` says of a batch to an epoch's `track` or `track_eval`."""
    return lambda value, preds, labels: track(value, **loss.tracked(preds, labels))


def train_epoch(
    stepper: Stepper, batches: Iterable[Any], *, track: Track, after_step: Callable[[], None] | None = None
) -> None:
    """Take one optimiser step for each batch (images, labels) on the network's device, on the mean loss.

    `track(loss, preds, labels)` is called after each step. Raises `TensorMismatchError` for a batch that does not fit.
    """
    stepper.network.train()
    for images, labels in batches:
        loss, preds = stepper.train(images, labels)
        if after_step is not None:
            after_step()
        track(loss, preds, labels)


@torch.no_grad()
def evaluate_epoch(stepper: Stepper, batches: Iterable[Any], *, track: Track) -> None:
    """Track each batch's mean loss in eval mode, without gradients; restore the mode at the end."""
    with _eval_mode(stepper.network):
        for images, labels in batches:
            loss, preds = stepper.evaluate(images, labels)
            track(loss, preds, labels)


@contextmanager
def _eval_mode(network: torch.nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def fit(
    epochs: int,
    lr: float,
    model: torch.nn.Module,
    train_loader: Iterable[Any],
    val_loader: Iterable[Any] | None = None,
    opt_func: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
) -> list[dict[str, float]]:
    """Train `model` on its own device and return the history: one dict an epoch.

    Each dict has `loss` and `accuracy` (training), and with a `val_loader` also `val_loss` and `val_accuracy`;
    accuracies are fractions. Batches are (images, labels), on any device.
    """
    stepper = Stepper(Forward(model), opt_func(model.parameters(), lr))
    history = []
    for _ in range(epochs):
        meter = EpochMeter()
        train_epoch(stepper, _on_model_device(train_loader, model), track=_tracker(meter))
        row = _as_row(meter, "")
        if val_loader is not None:
            row |= evaluate(model, val_loader)
        history.append(row)
    return history


def evaluate(model: torch.nn.Module, val_loader: Iterable[Any]) -> dict[str, float]:
    """`val_loss` and `val_accuracy` of `model` over a loader of (images, labels), on the model's device."""
    meter = EpochMeter()
    evaluate_epoch(Stepper(Forward(model)), _on_model_device(val_loader, model), track=_tracker(meter))
    return _as_row(meter, "val_")


def _on_model_device(loader: Iterable[Any], model: torch.nn.Module) -> Iterator[Any]:
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    for batch in loader:
        yield to_device(batch, device)


def _tracker(meter: EpochMeter) -> Track:
    def track(loss: torch.Tensor, preds: torch.Tensor, labels: torch.Tensor) -> None:
        meter.add_loss(loss, labels.shape[0])
        meter.add_predictions(preds, labels)

    return track


def _as_row(meter: EpochMeter, prefix: str) -> dict[str, float]:
    averages = meter.averages()
    if averages.loss is None:
        raise UsageError("A loader must give at least one batch, got none.")
    accuracy = math.nan if averages.accuracy is None else averages.accuracy  # if all labels are ignored
    return {f"{prefix}loss": averages.loss, f"{prefix}accuracy": accuracy}
