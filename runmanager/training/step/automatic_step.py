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

import torch
from torch import nn

from runmanager.tracking.introspect.isolation import isolated
from runmanager.tracking.introspect.model_copy import copy_to_meta
from runmanager.tracking.torch_internals import storage_id
from runmanager.training.criteria.loss import Loss
from runmanager.training.options.job import AUTO, Precision, TrainingOptions
from runmanager.training.step.allocator import LARGEST_KEPT_BYTES
from runmanager.training.step.known_networks import draws_by_layout, draws_numbers, is_known, takes_any_batch
from runmanager.training.step.micro_batches import needs_whole_batches

__all__ = ["resolved_channels_last", "resolved_micro_batch"]


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
