"""One optimiser step, the evaluation of one batch, and readable errors for a batch that does not fit the network."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from runmanager.errors import ConfigurationError, TensorMismatchError
from runmanager.text import pluralize
from runmanager.training.criteria import Loss
from runmanager.training.options.job import OutOfMemory, Precision, TrainingOptions
from runmanager.training.step.amp import CountingScaler, autocast, precision_faults, scaler_for, weight_faults
from runmanager.training.step.automatic_step import resolved_channels_last, resolved_micro_batch
from runmanager.training.step.cuda_graphs import GraphDevice, GraphedSteps, OptimizerStep
from runmanager.training.step.micro_batches import MicroBatches, Share, piece_faults
from runmanager.validation import fault

# PyTorch's messages about a tensor of the wrong shape contain one of these.
_SHAPE_WORDS = ("shape", "size", "dimension", "channels", "expected input", "3d", "4d")


@contextmanager
def explain_shape_errors(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> Iterator[None]:
    """Convert PyTorch's error about a batch (images, labels) to a `TensorMismatchError` if the cause is clear."""
    try:
        yield
    except (RuntimeError, IndexError, ValueError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        cause = _wrong_device(network, images, labels) or _wrong_classes(network, images, labels, error)
        cause = cause or _wrong_shape(network, images, error)
        if cause is None:
            raise
        raise TensorMismatchError(cause) from error


def _wrong_device(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> str | None:
    parameter = next(network.parameters(), None)
    for name, tensor in (("images", images), ("labels", labels)):
        expected = images.device if parameter is None else parameter.device
        if tensor.device != expected:
            owner = "the network's parameters" if parameter is not None else "the images"
            return (
                f"The {name} must be on the device of {owner}, {expected}, got {tensor.device}; "
                f"move them with {name}.to('{expected}')."
            )
    return None


def _wrong_classes(
    network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, error: Exception
) -> str | None:
    text = str(error).lower()
    if not any(word in text for word in ("out of bounds", "target", "scalar type")):
        return None
    of_pixels = labels.ndim > 2
    if labels.dtype not in (torch.int64, torch.uint8) or (labels.ndim != 1 and not of_pixels):
        shape, flattened = ("(batch, height, width)", "") if of_pixels else ("(batch,)", ".reshape(-1)")
        return (
            f"The labels must be class numbers, int64 of shape {shape}, got {labels.dtype} of shape "
            f"{tuple(labels.shape)}; convert them with labels.to(torch.int64){flattened}."
        )
    if len(labels) != len(images):
        got = f"{pluralize(len(labels), 'label')} and {pluralize(len(images), 'image')}"
        return f"A batch must have one label an image, got {got}."
    if "out of bounds" not in text:
        return None
    layers = [module for module in network.modules() if isinstance(module, torch.nn.Linear | torch.nn.Conv2d)]
    low, high = int(labels.min()), int(labels.max())
    outputs = (
        f"the network's last layer has {pluralize(_outputs(layers[-1]), 'output')}"
        if layers
        else "the network has fewer outputs"
    )
    return (
        f"The labels must be class numbers below the number of classes, got {low} to {high} where {outputs}; "
        "give the network as many outputs as there are classes, and count classes from 0."
    )


def _outputs(layer: torch.nn.Linear | torch.nn.Conv2d) -> int:
    return layer.out_features if isinstance(layer, torch.nn.Linear) else layer.out_channels


def _wrong_shape(network: torch.nn.Module, images: torch.Tensor, error: Exception) -> str | None:
    if not any(word in str(error).lower() for word in _SHAPE_WORDS):
        return None  # an error of the model itself; its first layer may not receive the images
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            if images.ndim == 4 and images.shape[1] != module.in_channels:
                return (
                    f"The images must have {pluralize(module.in_channels, 'channel')} for the network's first layer "
                    f"({name}), got {images.shape[1]} (images {tuple(images.shape)}); build that layer with "
                    f"in_channels={images.shape[1]}."
                )
            return None
        if isinstance(module, torch.nn.Linear):
            features = images.numel() // max(images.shape[0], 1)
            if features != module.in_features:
                return (
                    f"A sample must have {pluralize(module.in_features, 'value')} for the network's first layer "
                    f"({name}), got {features} (images {tuple(images.shape)}); build that layer with "
                    f"in_features={features}."
                )
            if images.ndim != 2:
                return (
                    f"The network's first layer ({name}) takes flat samples (batch, {features}), got images "
                    f"{tuple(images.shape)}; begin the network with nn.Flatten()."
                )
            return None
    return None


def build_stepper(
    options: TrainingOptions,
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    device: torch.device,
    in_shape: tuple[int, ...],
    notify: Callable[[str], None],
    loss: Loss | None = None,
    apply: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> "Stepper":
    """Create the stepper that the settings ask for, for a network on `device` and samples of `in_shape`.

    `loss` is by default the cross-entropy. `apply` computes the predictions if the network itself does not. `notify` is
    called with a line for each deviation from the settings. Raises `ConfigurationError` for settings that the network,
    the samples or the device do not support.
    """
    precision = Precision(options.precision)
    faults = precision_faults(precision, device) + weight_faults(network, precision)
    loss = loss or Loss()
    faults += piece_faults(network, loss, micro_batch=options.micro_batch, on_oom=options.on_oom)
    if options.channels_last is True and len(in_shape) != 3:
        faults.append(fault("channels_last", "be false for samples that are not images", f"samples {tuple(in_shape)}"))
    if faults:
        raise ConfigurationError(faults)
    channels_last = resolved_channels_last(options, network, device=device, in_shape=in_shape)
    forward = Forward(network, loss, precision=precision, channels_last=channels_last, apply=apply)
    pieces = MicroBatches(
        resolved_micro_batch(options, network, loss, device=device, in_shape=in_shape),
        halve_on_oom=options.on_oom == OutOfMemory.HALVE,
        notify=notify,
        weigh=loss.num_counted,
    )
    return Stepper(forward, optimizer, pieces=pieces, scaler=scaler_for(precision, device))


class Forward:
    """The forward pass of a batch (images, labels): its mean loss, a scalar, and predictions (batch, …).

    `loss` is by default the cross-entropy. `apply` computes the predictions from images; the default is the network
    itself, and a faster equivalent may replace it. Raises `TensorMismatchError` for a batch that does not fit.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        loss: Loss | None = None,
        *,
        precision: Precision = Precision.FP32,
        channels_last: bool = False,
        apply: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.network = network
        self.loss = loss or Loss()
        self._precision = precision
        self._channels_last = False
        self._apply = network if apply is None else apply
        self.channels_last = channels_last

    @property
    def channels_last(self) -> bool:
        """Whether weights and images are stored with their channels last; setting it moves the weights."""
        return self._channels_last

    @channels_last.setter
    def channels_last(self, value: bool) -> None:
        if value != self._channels_last:
            self.network.to(memory_format=torch.channels_last if value else torch.contiguous_format)
            self._channels_last = value

    def __call__(
        self, images: torch.Tensor, labels: torch.Tensor, *, is_piece: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with explain_shape_errors(self.network, images, labels), autocast(self._precision, images.device):
            return self.loss(self._apply(self._in_memory_format(images)), labels, is_piece=is_piece)

    def predict(self, images: torch.Tensor, apply: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Return what `apply` computes of the images, in this precision and memory format."""
        with autocast(self._precision, images.device):
            return apply(self._in_memory_format(images))

    def _in_memory_format(self, images: torch.Tensor) -> torch.Tensor:
        return images.contiguous(memory_format=torch.channels_last) if self._channels_last else images


class Predictor(torch.nn.Module):
    """The network of `forward_pass` as it is called for inference, in the same precision and memory format.

    `is_compiled`: its code is compiled once for each shape of images (batch, …).
    """

    def __init__(self, forward_pass: Forward, *, is_compiled: bool) -> None:
        super().__init__()
        network = forward_pass.network
        self.training = network.training
        self._network = torch.compile(network, dynamic=False) if is_compiled else network
        self._forward_pass = forward_pass

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the predictions (batch, …)."""
        return self._forward_pass.predict(images, self._network)


class Stepper:
    """Trains on or evaluates one batch (images, labels) at a time, on the network's device.

    ```
    train      zero the gradients; forward, loss and backward, on the whole batch or in pieces; update
    evaluate   forward and loss, on the whole batch or in pieces
    ```

    Both return the mean loss over the batch, a scalar, and the predictions (batch, …). Without an `optimizer`
    only `evaluate` works. The state holds what a resumed run must know: the memory format, the piece size and the
    gradient scaler.
    """

    def __init__(
        self,
        forward: Forward,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        pieces: MicroBatches | None = None,
        scaler: CountingScaler | None = None,
    ) -> None:
        self.network, self.loss = forward.network, forward.loss
        self._forward = forward
        self._optimizer = optimizer
        self._pieces = pieces or MicroBatches()
        self._scaler = scaler
        self._graphed: GraphedSteps | None = None

    def use_graphs(
        self, device: GraphDevice, *, num_warmups: int, required: bool, notify: Callable[[str], None]
    ) -> None:
        """Capture a step once, after `num_warmups` others, and replay it from then on; see `GraphedSteps`."""
        assert self._optimizer is not None
        self._graphed = GraphedSteps(
            OptimizerStep(self.compute_gradients, self._update, self._optimizer, is_scaled=self._scaler is not None),
            device,
            num_warmups=num_warmups,
            required=required,
            notify=notify,
        )

    def train(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take one optimiser step on the mean loss over the batch."""
        if self._graphed is not None:
            return self._graphed.step(images, labels)
        loss, preds = self.compute_gradients(images, labels)
        self._update()
        return loss, preds

    def compute_gradients(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute all gradients without an update; return what `train` returns."""
        assert self._optimizer is not None
        self._optimizer.zero_grad()
        return self._pieces.compute(self._backward_piece, images, labels, network=self.network)

    def evaluate(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the batch's loss and predictions; the caller sets the evaluation mode."""
        return self._pieces.compute(self._evaluate_piece, images, labels, network=self.network)

    def predictor(self, *, is_compiled: bool) -> torch.nn.Module:
        """Return the network as a module that is called for inference; see `Predictor`."""
        return Predictor(self._forward, is_compiled=is_compiled)

    def _backward_piece(
        self, images: torch.Tensor, labels: torch.Tensor, share: Share
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the gradients of a piece that is this share of its batch; None is the whole of it."""
        loss, preds = self._forward(images, labels, is_piece=share is not None)
        weighted = loss if share is None else loss * share
        (weighted if self._scaler is None else self._scaler.scale(weighted)).backward()
        return loss.detach(), preds.detach()

    def _evaluate_piece(
        self, images: torch.Tensor, labels: torch.Tensor, share: Share
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._forward(images, labels, is_piece=share is not None)

    def _update(self) -> None:
        assert self._optimizer is not None
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()

    @property
    def choices(self) -> dict[str, bool | int | None]:
        """What the settings that may be `auto` are now."""
        return {"channels_last": self._forward.channels_last, "micro_batch": self.piece_size}

    @property
    def piece_size(self) -> int | None:
        """The largest number of samples that are computed at once; None for whole batches."""
        return self._pieces.size

    @property
    def num_skipped(self) -> int:
        """The number of steps skipped because their gradients overflowed; waits for the device."""
        return 0 if self._scaler is None else self._scaler.num_skipped

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to continue as an uninterrupted one would."""
        scaler = {} if self._scaler is None else self._scaler.state_dict()
        return {**self.choices, "scaler": scaler}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        # Older versions did not store the layout.
        self._forward.channels_last = state.get("channels_last", self._forward.channels_last)
        self._pieces.size = state["micro_batch"]
        if self._scaler is not None and state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])
