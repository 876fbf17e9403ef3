"""One optimiser step: the forward pass and its loss, the gradients, the update; and a batch's evaluation."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from runmanager.errors import ConfigurationError
from runmanager.training.options.job import TrainingOptions
from runmanager.training.options.step import AUTO, OutOfMemory, Precision
from runmanager.training.step.amp import CountingScaler, autocast, precision_faults, scaler_for, weight_faults
from runmanager.training.step.cuda_graphs import GraphDevice, GraphedSteps
from runmanager.training.step.micro_batches import MicroBatches, fast_size, needs_whole_batches, piece_faults
from runmanager.training.step.shape_errors import explained
from runmanager.validation import fault

__all__ = ["Forward", "Stepper", "build_stepper"]


def build_stepper(
    options: TrainingOptions,
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    device: torch.device,
    in_shape: tuple[int, ...],
    tell: Callable[[str], None],
    apply: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> "Stepper":
    """Steps as the settings want them, of a network that is on `device`, for samples of `in_shape`.

    `apply` computes its predictions, where something else than itself does. `tell` hears of what is done otherwise than
    asked. Raises `ConfigurationError` for what this network, these samples or this device cannot do.
    """
    precision = Precision(options.precision)
    faults = precision_faults(precision, device) + weight_faults(network, precision)
    faults += piece_faults(network, micro_batch=options.micro_batch, on_oom=options.on_oom)
    if options.channels_last and len(in_shape) != 3:
        faults.append(fault("channels_last", "be false for samples that are no images", f"samples {tuple(in_shape)}"))
    if faults:
        raise ConfigurationError(faults)
    forward = Forward(network, precision=precision, channels_last=options.channels_last, apply=apply)
    pieces = _pieces(options, network, device, in_shape, tell)
    return Stepper(forward, optimizer, pieces=pieces, scaler=scaler_for(precision, device))


def _pieces(
    options: TrainingOptions,
    network: torch.nn.Module,
    device: torch.device,
    in_shape: tuple[int, ...],
    tell: Callable[[str], None],
) -> MicroBatches:
    halves = options.on_oom == OutOfMemory.HALVE
    if options.micro_batch != AUTO:
        assert not isinstance(options.micro_batch, str)
        return MicroBatches(options.micro_batch, halves=halves, tell=tell)
    if needs_whole_batches(network):
        return MicroBatches()
    if device.type == "cpu":
        return MicroBatches(fast_size(network, in_shape), halves=halves, tell=tell)
    return MicroBatches(halves=True, tell=tell)


class Forward:
    """What a batch (images, labels) comes to: its mean cross-entropy, a scalar, and the predictions (batch, classes).

    `apply` computes the predictions of images, and is the network itself unless something faster does the same.
    Raises `TensorMismatchError` for a batch that does not fit.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        *,
        precision: Precision = Precision.FP32,
        channels_last: bool = False,
        apply: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.network = network
        self._precision = precision
        self._channels_last = channels_last
        self._apply = network if apply is None else apply
        if channels_last:
            network.to(memory_format=torch.channels_last)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with explained(self.network, images, labels), autocast(self._precision, images.device):
            if self._channels_last:
                images = images.contiguous(memory_format=torch.channels_last)
            preds = self._apply(images)
            return F.cross_entropy(preds, labels), preds


class Stepper:
    """Makes the steps of a run, each from one batch (images, labels) on the network's device.

    ```
    train      gradients begin at zero; forward, loss and backward, of the whole batch or piece by piece; update
    evaluate   forward and loss, of the whole batch or piece by piece
    ```

    Both return the mean loss over the batch, a scalar, and the predictions (batch, classes). Without an `optimizer`
    it can only evaluate. What it learned of the device on its way, and must know after a resume, is its state.
    """

    def __init__(
        self,
        forward: Forward,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        pieces: MicroBatches | None = None,
        scaler: CountingScaler | None = None,
    ) -> None:
        self.network = forward.network
        self._forward = forward
        self._optimizer = optimizer
        self._pieces = pieces or MicroBatches()
        self._scaler = scaler
        self._graphed: GraphedSteps | None = None

    def replay_on(self, device: GraphDevice, *, num_warmups: int, must: bool, tell: Callable[[str], None]) -> None:
        """From now on capture a step once, after `num_warmups` others, and replay it; see `GraphedSteps`."""
        assert self._optimizer is not None
        self._graphed = GraphedSteps(
            self.learn,
            self._update,
            self._optimizer,
            device,
            num_warmups=num_warmups,
            is_scaled=self._scaler is not None,
            must=must,
            tell=tell,
        )

    def train(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One optimiser step, by the mean cross-entropy over the batch."""
        if self._graphed is not None:
            return self._graphed.step(images, labels)
        loss, preds = self.learn(images, labels)
        self._update()
        return loss, preds

    def learn(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The first part of a step: all gradients, and what `train` returns."""
        assert self._optimizer is not None
        self._optimizer.zero_grad()
        return self._pieces.each(self._learn, images, labels, network=self.network)

    def evaluate(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The batch's loss and predictions; nothing is learned. Whoever calls it sets the mode."""
        return self._pieces.each(self._look, images, labels, network=self.network)

    def _learn(self, images: torch.Tensor, labels: torch.Tensor, share: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the gradient of a piece that is this share of its batch."""
        loss, preds = self._forward(images, labels)
        weighed = loss if share == 1 else loss * share
        (weighed if self._scaler is None else self._scaler.scale(weighed)).backward()
        return loss.detach(), preds.detach()

    def _look(self, images: torch.Tensor, labels: torch.Tensor, _share: float) -> tuple[torch.Tensor, torch.Tensor]:
        return self._forward(images, labels)

    def _update(self) -> None:
        assert self._optimizer is not None
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()

    @property
    def piece_size(self) -> int | None:
        """How many samples of a batch are computed at once, at most; None: all of them."""
        return self._pieces.size

    @property
    def num_skipped(self) -> int:
        """Steps that were left out because their gradients overflowed; waits for the device."""
        return 0 if self._scaler is None else self._scaler.num_skipped

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know to go on as if it had never stopped."""
        scaler = {} if self._scaler is None else self._scaler.state_dict()
        return {"micro_batch": self._pieces.size, "scaler": scaler}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self._pieces.size = state["micro_batch"]
        if self._scaler is not None and state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])
