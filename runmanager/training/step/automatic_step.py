"""What `channels_last=auto` and `micro_batch=auto` become: by a rule for device and model, never by measuring a run.

Both change how a step is computed, and must not change what: so only for networks whose whole code is known
(`known_networks`). All others keep the plain way.

| device | `channels_last` | `micro_batch` |
| --- | --- | --- |
| CPU | in fp32, if most convolutions are pointwise or depthwise | in fp32, pieces of a fast size (`piece_size`) |
| NVIDIA GPU | convolutions under bf16 or fp16 whose channels suit tensor cores | whole batches |
| others | plain | whole batches |

The rule for CPUs was found by measuring (`python -m benchmarks.automatic_steps`). That for GPUs follows documentation:
PyTorch, "Channels Last Memory Format in PyTorch"; NVIDIA, "Convolutional Layers User's Guide": tensor cores take NHWC,
and channels that are multiples of 8 in 16-bit types.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from runmanager.tracking.introspect.isolation import isolated
from runmanager.tracking.introspect.model_copy import copy_to_meta
from runmanager.tracking.torch_internals import (
    CALL_HOOK_TABLES,
    GLOBAL_HOOK_TABLES,
    has_gradient_hooks,
    module_hooks,
    storage_id,
)
from runmanager.training.criteria import Loss
from runmanager.training.models.builtin_models import Network, Resized
from runmanager.training.options.job import AUTO, Precision, TrainingOptions
from runmanager.training.step.micro_batches import LARGEST_KEPT_BYTES, needs_whole_batches

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)

_KNOWN: frozenset[type[nn.Module]] = frozenset(
    {
        *(nn.Sequential, nn.Identity, Network, Resized, *_DROPOUTS),
        *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
        *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
        *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
        *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish),
        *(nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid),
        *(nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
        *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.LocalResponseNorm),
        *(nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.Upsample, nn.PixelShuffle, nn.PixelUnshuffle),
    }
)
"""Modules whose forward pass treats the first dimension as samples, apart from normalisation by batch statistics."""

_KNOWN_IF: dict[type[nn.Module], Callable[[Any], bool]] = {
    nn.Flatten: lambda module: module.start_dim >= 1,
    nn.Unflatten: lambda module: isinstance(module.dim, int) and module.dim >= 1,
    nn.Softmax: lambda module: module.dim is not None and module.dim >= 1,
    nn.LogSoftmax: lambda module: module.dim is not None and module.dim >= 1,
    nn.MultiheadAttention: lambda module: bool(module.batch_first),
    nn.modules.linear.NonDynamicallyQuantizableLinear: lambda module: True,  # within MultiheadAttention
}

_KNOWN_PACKAGES = ("torchvision.models.", "torchvision.ops.")
"""The classifiers there are built of the modules above, and of functions that treat each sample alone."""


def is_known(network: nn.Module) -> bool:
    """Whether the code of the whole forward pass is known, without user code in modules, functions or hooks.

    Apart from rounding and random numbers its result does not depend on how tensors lie in memory, and that of a sample
    on other samples by batch statistics only (if it `takes_any_batch`). Any other network may compute anything.
    """
    if any(GLOBAL_HOOK_TABLES) or any(map(has_gradient_hooks, network.parameters())):
        return False
    return all(map(_is_known_module, network.modules()))


def _is_known_module(module: nn.Module) -> bool:
    if "forward" in vars(module) or any(module_hooks(module, table) for table in CALL_HOOK_TABLES):
        return False
    kind = type(module)
    if kind in _KNOWN_IF:
        return _KNOWN_IF[kind](module)
    return kind in _KNOWN or f"{kind.__module__}.".startswith(_KNOWN_PACKAGES)


def takes_any_batch(network: nn.Module, in_shape: tuple[int, ...]) -> bool:
    """Whether the first dimension of inputs and outputs is that of samples; layers may take it for another one."""
    try:
        with isolated(network):
            on_meta, _ = copy_to_meta(network)
            return all(len(on_meta(torch.empty((count, *in_shape), device="meta"))) == count for count in (2, 3))
    except Exception:  # a network may raise anything without data
        return False


def draws_numbers(network: nn.Module) -> bool:
    """Whether a known network draws random numbers in training: the pieces of a batch would draw others."""
    return any(map(_draws, network.modules()))


def _draws(module: nn.Module) -> bool:
    """Modules of torchvision and attention keep the probability of a function that drops values as an attribute."""
    probabilities = [
        value for name, value in vars(module).items() if "drop" in name.lower() and isinstance(value, int | float)
    ]
    if isinstance(module, _DROPOUTS) or type(module).__name__ == "StochasticDepth":
        probabilities.append(module.p)  # type: ignore[arg-type]  # a number in all of them
    return any(value > 0 for value in probabilities)


def draws_by_layout(network: nn.Module, in_shape: tuple[int, ...]) -> bool:
    """Whether which random number a value gets may depend on how a known network's tensors lie in memory.

    `Dropout` draws in the order of memory. For inputs (batch, features) that is the same in every layout.
    """
    drawing = [(name, module) for name, module in network.named_modules() if _draws(module)]
    # One number a sample, drawn into a tensor of its own.
    layers = [(name, module) for name, module in drawing if type(module).__name__ != "StochasticDepth"]
    if not layers:
        return False
    if not all(isinstance(module, _DROPOUTS) for _, module in layers):
        return True
    return _most_dimensions(network, [name for name, _ in layers], in_shape) > 2


def _most_dimensions(network: nn.Module, names: list[str], in_shape: tuple[int, ...]) -> float:
    """Return the largest number of dimensions of the inputs of the modules with these names; infinity if unknown."""
    seen: list[int] = []
    try:
        with isolated(network):
            on_meta, _ = copy_to_meta(network)
            for name in names:
                on_meta.get_submodule(name).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].ndim))
            on_meta(torch.empty((2, *in_shape), device="meta"))
    except Exception:  # a network may raise anything without data
        return math.inf
    return max(seen, default=0)


_CHANNELS_OF_TENSOR_CORES = 8
_TENSOR_CORES = (7, 0)  # compute capability


_LARGEST_BYTES = LARGEST_KEPT_BYTES * 15 // 16  # with room for the allocator's own
_MAX_WEIGHT_BYTES = 8 * 2**20
"""Each piece reads all weights and adds to all gradients; with more of them that costs more than pieces gain."""
_CHANNELS_OF_A_BLOCK = 16  # convolutions compute in blocks of channels, and pad them


def fast_piece_size(network: nn.Module, in_shape: tuple[int, ...]) -> int | None:
    """The largest number of samples of `in_shape` of which no tensor of a step exceeds what a process keeps.

    Larger tensors are memory that the kernel maps and clears in each step, which can double its time; fewer samples
    have more overhead. Calculated, not measured, so that it is the same in every run, from a pass of a copy on the
    `meta` device. None if the network cannot run without data, or for which pieces gain nothing.
    """
    if sum(each.numel() * each.element_size() for each in network.parameters()) > _MAX_WEIGHT_BYTES:
        return None
    saved: dict[int, torch.UntypedStorage] = {}  # by address, because two operators may save the same tensor
    sizes: list[float] = []

    def save(tensor: torch.Tensor) -> torch.Tensor:
        saved[storage_id(tensor)] = tensor.untyped_storage()
        return tensor

    def add_output(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        samples, channels = output.shape[:2]
        padded = -(-channels // _CHANNELS_OF_A_BLOCK) * _CHANNELS_OF_A_BLOCK
        sizes.append(output.numel() * output.element_size() / samples / channels * padded)

    try:
        with isolated(network):
            on_meta, _ = copy_to_meta(network)
            for module in on_meta.modules():
                if isinstance(module, nn.Conv2d):
                    module.register_forward_hook(add_output)
            with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
                on_meta(torch.empty((2, *in_shape), device="meta"))
    except Exception:  # a model may raise anything without data
        return None
    own = {storage_id(each) for each in (*on_meta.parameters(), *on_meta.buffers())}
    sizes += [storage.nbytes() / 2 for key, storage in saved.items() if key not in own]
    return max(1, int(_LARGEST_BYTES / max(sizes))) if any(sizes) else None


def resolved_channels_last(
    options: TrainingOptions, network: nn.Module, *, device: torch.device, in_shape: tuple[int, ...]
) -> bool:
    """Whether weights and images are stored with their channels last, for a network on `device`."""
    if not isinstance(options.channels_last, str):
        return options.channels_last
    convolutions = [each for each in network.modules() if isinstance(each, nn.Conv2d)]
    if options.compile or len(in_shape) != 3 or not convolutions:
        return False
    if device.type == "cpu":
        is_faster = options.precision == Precision.FP32 and _are_mostly_thin(convolutions)
    else:
        is_faster = _suits_tensor_cores(convolutions, Precision(options.precision)) and _has_tensor_cores(device)
    return is_faster and is_known(network) and not draws_by_layout(network, in_shape)


def _are_mostly_thin(convolutions: list[nn.Conv2d]) -> bool:
    """Whether most convolutions are of 1x1 or of single channels; others are as fast or faster with channels first."""
    thin = [each for each in convolutions if each.kernel_size == (1, 1) or each.groups == each.in_channels > 1]
    return 2 * len(thin) > len(convolutions)


def _has_tensor_cores(device: torch.device) -> bool:
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    return is_nvidia and torch.cuda.get_device_capability(device) >= _TENSOR_CORES


def _suits_tensor_cores(convolutions: list[nn.Conv2d], precision: Precision) -> bool:
    """Whether they compute in 16 bits, on channels that need no padding; the first one takes those of the images."""
    channels = [convolutions[0].out_channels, *(n for each in convolutions[1:] for n in _channels(each))]
    return precision.is_cast and all(count % _CHANNELS_OF_TENSOR_CORES == 0 for count in channels)


def _channels(convolution: nn.Conv2d) -> tuple[int, int]:
    return convolution.in_channels // convolution.groups, convolution.out_channels // convolution.groups


def resolved_micro_batch(
    options: TrainingOptions, network: nn.Module, loss: Loss, *, device: torch.device, in_shape: tuple[int, ...]
) -> int | None:
    """The largest number of samples that are computed at once; None for whole batches."""
    if options.micro_batch != AUTO:
        assert not isinstance(options.micro_batch, str)
        return options.micro_batch
    if device.type != "cpu" or options.compile or options.precision != Precision.FP32 or not loss.splits:
        return None
    if not is_known(network) or needs_whole_batches(network) or draws_numbers(network):
        return None
    size = fast_piece_size(network, in_shape)
    largest = max(options.batch_size, options.eval_batch_size or 0)
    return None if size is None or size >= largest or not takes_any_batch(network, in_shape) else size
