"""The number of samples at which a CPU computes a step fastest, from the sizes of a network's tensors."""

import torch
from torch import nn

from runmanager.tracking.introspect.isolation import isolated
from runmanager.tracking.introspect.model_copy import copy_to_meta
from runmanager.tracking.torch_internals import storage_id
from runmanager.training.step.allocator import LARGEST_KEPT_BYTES

__all__ = ["fast_piece_size"]

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
