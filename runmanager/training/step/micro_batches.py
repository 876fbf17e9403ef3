"""A batch in pieces: the same loss and gradient, from as many samples at a time as are fast or fit the memory."""

import math
from collections.abc import Callable
from typing import Any

import torch

from runmanager.text import pluralize
from runmanager.tracking.device.rng import random_states, restore_random_states
from runmanager.tracking.introspect.isolation import isolated
from runmanager.tracking.introspect.model_copy import copy_to_meta
from runmanager.tracking.lifecycle.outcome import is_out_of_memory
from runmanager.tracking.torch_internals import InstanceNormBase, NormBase, storage_id
from runmanager.training.options.step import OutOfMemory
from runmanager.validation import fault

__all__ = ["MicroBatches", "fast_size", "needs_whole_batches", "piece_faults"]

_FAST_BYTES = 40 * 2**20
"""What the activations of a piece may take: somewhat more than a CPU's last cache, which is where an epoch is fastest.

Smaller pieces pay more for each, and larger ones read their activations from memory.
"""

Work = Callable[[torch.Tensor, torch.Tensor, float], tuple[torch.Tensor, torch.Tensor]]
"""Does a piece (images, labels), which is a share of its batch; returns its mean loss and predictions (piece, …)."""


class MicroBatches:
    """Does a batch in pieces of at most `size` samples and as equal as can be, with None as a whole.

    With `halves` pieces that do not fit the memory are halved: the batch is done anew in smaller ones, and so are all
    that follow. `tell` hears of it.
    """

    def __init__(
        self, size: int | None = None, *, halves: bool = False, tell: Callable[[str], None] | None = None
    ) -> None:
        self.size = size
        self._halves = halves
        self._tell = tell

    def each(
        self, work: Work, images: torch.Tensor, labels: torch.Tensor, *, network: torch.nn.Module
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean loss over the batch and all predictions in order.

        A batch that is done anew finds random states, the buffers of the `network` and its gradients as they were. No
        gradient may be changed in place: before a step there are none, and an evaluation leaves them alone.
        """
        if not self._halves:
            return _in_pieces(work, images, labels, self.size)
        while True:
            before = _Before(network, images.device)
            size = min(self.size or len(images), len(images))
            try:
                return _in_pieces(work, images, labels, size)
            except Exception as error:
                if size == 1 or not is_out_of_memory(error):
                    raise
            # Only out here are the frames of the failed attempt gone, and with them its tensors.
            before.restore()
            self._halve(size, images.device)

    def _halve(self, size: int, device: torch.device) -> None:
        self.size = math.ceil(size / 2)
        if device.type != "cpu":
            module: Any = torch.get_device_module(device)
            module.empty_cache()
        if self._tell is not None:
            self._tell(
                f"out of memory with {pluralize(size, 'sample')} at once: steps are made in pieces of {self.size}"
            )


def _in_pieces(
    work: Work, images: torch.Tensor, labels: torch.Tensor, size: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    count = len(images)
    if size is None or size >= count:
        return work(images, labels, 1.0)
    num_pieces = math.ceil(count / size)
    losses, preds = [], []
    for piece, of_piece in zip(images.tensor_split(num_pieces), labels.tensor_split(num_pieces), strict=True):
        share = len(piece) / count
        loss, scores = work(piece, of_piece, share)
        losses.append(loss * share)
        preds.append(scores)
    return torch.stack(losses).sum(), torch.cat(preds)


class _Before:
    """What a step that is made anew must find again."""

    def __init__(self, network: torch.nn.Module, device: torch.device) -> None:
        self._device = device
        self._random = random_states(device)
        self._gradients = [(parameter, parameter.grad) for parameter in network.parameters()]
        self._buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]

    @torch.no_grad()
    def restore(self) -> None:
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        restore_random_states(self._random, self._device)
        for buffer, value in self._buffers:
            buffer.copy_(value)


def fast_size(network: torch.nn.Module, in_shape: tuple[int, ...]) -> int | None:
    """How many samples of `in_shape` a piece has for its activations to stay in a CPU's cache.

    By a rule, so that it is the same in every run: as many as have `_FAST_BYTES` of what the backward pass needs,
    counted on a copy on the `meta` device. None where the model cannot be followed without data, or keeps nothing.
    """
    kept: dict[int, torch.UntypedStorage] = {}  # a tensor that two operators keep is there once

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[storage_id(tensor)] = tensor.untyped_storage()
        return tensor

    try:
        with isolated(network):
            twin, _ = copy_to_meta(network)
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                twin(torch.empty((2, *in_shape), device="meta"))
    except Exception:  # any model may be impossible to follow, in any way
        return None
    own = {storage_id(each) for each in (*twin.parameters(), *twin.buffers())}
    sample_bytes = sum(storage.nbytes() for key, storage in kept.items() if key not in own) / 2
    return max(1, int(_FAST_BYTES / sample_bytes)) if sample_bytes else None


def needs_whole_batches(network: torch.nn.Module) -> bool:
    """Whether the network, in training mode, normalises by the statistics of its batch, or keeps these for later."""
    network.train()
    return any(
        isinstance(module, NormBase)
        and module.training
        and (module.track_running_stats or not isinstance(module, InstanceNormBase))
        for module in network.modules()
    )


def piece_faults(network: torch.nn.Module, *, micro_batch: int | str | None, on_oom: str) -> list[str]:
    """A fault for each of the two settings that would have a network see pieces that must see whole batches."""
    numbered = isinstance(micro_batch, int)
    if not (numbered or on_oom == OutOfMemory.HALVE) or not needs_whole_batches(network):
        return []
    with_norm = "for a model with batch normalisation or running statistics"
    way_out = "pieces have statistics of their own; use a smaller `batch_size`"
    faults = [fault("micro_batch", f"be null or auto {with_norm}", micro_batch, way_out)] if numbered else []
    if on_oom == OutOfMemory.HALVE:
        faults.append(fault("on_oom", f"be fail {with_norm}", on_oom, way_out))
    return faults
