"""Micro-batches: compute a batch in pieces that are fast or fit the memory, with the same loss and gradient."""

import contextlib
import ctypes
import math
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from runmanager.text import pluralize
from runmanager.tracking.device.devices import random_states, restore_random_states
from runmanager.tracking.lifecycle.outcome import is_out_of_memory
from runmanager.tracking.torch_internals import InstanceNormBase, NormBase
from runmanager.training.criteria import Loss
from runmanager.training.options.job import OutOfMemory
from runmanager.validation import fault

Share = float | torch.Tensor | None
"""What a piece contributes to the mean loss of its batch; None if it is the whole batch."""

PieceFunction = Callable[[torch.Tensor, torch.Tensor, Share], tuple[torch.Tensor, torch.Tensor]]
"""Computes a piece (images, labels) with its share of the batch; returns its mean loss and predictions (piece, …)."""

Weigh = Callable[[torch.Tensor], torch.Tensor | None]
"""The weight of labels in a mean loss, a scalar on their device; None if all samples have the same."""


class MicroBatches:
    """Computes a batch in nearly equal pieces of at most `size` samples; None computes it as a whole.

    With `halve_on_oom`, pieces that do not fit the memory are halved: the batch is computed again, and later batches
    use the smaller size too. `notify` is called with a line about it. A piece counts by its number of samples, or as
    `weigh` says.
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        halve_on_oom: bool = False,
        notify: Callable[[str], None] | None = None,
        weigh: Weigh = lambda _labels: None,
    ) -> None:
        self._weigh = weigh
        self.size = size
        self._halve_on_oom = halve_on_oom
        self._notify = notify

    def compute(
        self, compute_piece: PieceFunction, images: torch.Tensor, labels: torch.Tensor, *, network: torch.nn.Module
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the mean loss over the batch and all predictions in order.

        Before a batch is computed again, random states and the buffers and gradients of `network` are restored.
        Gradients must not be changed in place: before a step there are none, and an evaluation does not change them.
        """
        if not self._halve_on_oom:
            return _in_pieces(compute_piece, images, labels, self.size, self._weigh)
        while True:
            before = _Snapshot(network, images.device)
            size = min(self.size or len(images), len(images))
            try:
                return _in_pieces(compute_piece, images, labels, size, self._weigh)
            except Exception as error:
                if size == 1 or not is_out_of_memory(error):
                    raise
            # Only here are the frames of the failed attempt freed, and their tensors with them.
            before.restore()
            self._halve(size, images.device)

    def _halve(self, size: int, device: torch.device) -> None:
        self.size = math.ceil(size / 2)
        if device.type != "cpu":
            module: Any = torch.get_device_module(device)
            module.empty_cache()
        if self._notify is not None:
            self._notify(
                f"out of memory with {pluralize(size, 'sample')} at once: steps are computed in pieces of {self.size}"
            )


def _in_pieces(
    compute_piece: PieceFunction, images: torch.Tensor, labels: torch.Tensor, size: int | None, weigh: Weigh
) -> tuple[torch.Tensor, torch.Tensor]:
    count = len(images)
    if size is None or size >= count:
        return compute_piece(images, labels, None)
    num_pieces = math.ceil(count / size)
    losses, preds = [], []
    whole = weigh(labels)
    for some_images, some_labels in zip(images.tensor_split(num_pieces), labels.tensor_split(num_pieces), strict=True):
        share = _share(some_labels, whole, count, weigh)
        loss, some_preds = compute_piece(some_images, some_labels, share)
        losses.append(loss * share)
        preds.append(some_preds)
    return torch.stack(losses).sum(), torch.cat(preds)


def _share(labels: torch.Tensor, whole: torch.Tensor | None, count: int, weigh: Weigh) -> float | torch.Tensor:
    weight = weigh(labels)
    if whole is None or weight is None:
        return len(labels) / count
    return weight / whole


class _Snapshot:
    """Random states, gradients and buffers, to be restored before a step is repeated."""

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


def needs_whole_batches(network: torch.nn.Module) -> bool:
    """Whether the network uses or records the statistics of a whole batch in training mode."""
    network.train()
    return any(
        isinstance(module, NormBase)
        and module.training
        and (module.track_running_stats or not isinstance(module, InstanceNormBase))
        for module in network.modules()
    )


def piece_faults(network: torch.nn.Module, loss: Loss, *, micro_batch: int | str | None, on_oom: str) -> list[str]:
    """Check the two settings that split batches, for a network or a loss that needs whole ones: one fault each."""
    has_size = isinstance(micro_batch, int)
    if not (has_size or on_oom == OutOfMemory.HALVE):
        return []
    if needs_whole_batches(network):
        such = "for a model with batch normalisation or running statistics"
        way_out = "each piece has its own statistics; use a smaller `batch_size`"
    elif not loss.splits:
        such = f"for a loss like {type(loss.function).__name__}"
        way_out = "it may not be the mean of the losses of pieces; use a smaller `batch_size`"
    else:
        return []
    faults = [fault("micro_batch", f"be null or auto {such}", micro_batch, way_out)] if has_size else []
    if on_oom == OutOfMemory.HALVE:
        faults.append(fault("on_oom", f"be fail {such}", on_oom, way_out))
    return faults


# The numbers of the parameters in malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

LARGEST_KEPT_BYTES = 32 * 2**20
"""The largest block that is kept; glibc accepts no higher threshold."""
_TRIM_THRESHOLD_BYTES = 2**30
_USER_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed_memory() -> None:
    """Let this process keep up to 1 GiB of freed memory, in blocks of up to 32 MiB each.

    A step on the CPU allocates and frees the same tens of megabytes each time. By default glibc returns them to the
    kernel in between, which then clears and maps each page again: thousands of page faults a step. Does nothing except
    on Linux with glibc, or if an environment variable configures memory allocation.

    Source: mallopt(3).
    """
    if sys.platform != "linux" or any(os.environ.get(name) for name in _USER_SETTINGS):
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
