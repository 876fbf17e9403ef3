"""A batch in pieces: the same loss and gradient, from as many samples at a time as are fast or fit the memory."""

from collections.abc import Callable

import torch

from runmanager.tracking.outcomes import is_out_of_memory
from runmanager.tracking.randomness import random_states, restore_random_states

__all__ = ["MicroBatches"]

Work = Callable[[torch.Tensor, torch.Tensor, float], tuple[torch.Tensor, torch.Tensor]]
"""Does a piece (images, labels), which is a share of its batch; returns its mean loss and predictions (piece, …)."""


class MicroBatches:
    """Does a batch in pieces of at most `size` samples, with None as a whole.

    With `halves` a piece that does not fit the memory is halved: the batch is done anew in smaller pieces, and so are
    all that follow. `tell` is told of it.
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

        A batch that is done anew finds random states, buffers and gradients of the `network` as they were; gradients
        are taken to have been none.
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
            self._halve(size)

    def _halve(self, size: int) -> None:
        self.size = (size + 1) // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if self._tell is not None:
            self._tell(f"out of memory with {size} samples at once: steps are made in pieces of {self.size}")


def _in_pieces(
    work: Work, images: torch.Tensor, labels: torch.Tensor, size: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    count = len(images)
    if size is None or size >= count:
        return work(images, labels, 1.0)
    losses, preds = [], []
    for piece, of_piece in zip(images.split(size), labels.split(size), strict=True):
        share = len(piece) / count
        loss, scores = work(piece, of_piece, share)
        losses.append(loss * share)
        preds.append(scores)
    return torch.stack(losses).sum(), torch.cat(preds)


class _Before:
    """What a step that is made anew must find again."""

    def __init__(self, network: torch.nn.Module, device: torch.device) -> None:
        self._network = network
        self._device = device
        self._random = random_states(device)
        self._buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]

    @torch.no_grad()
    def restore(self) -> None:
        self._network.zero_grad()
        restore_random_states(self._random, self._device)
        for buffer, value in self._buffers:
            buffer.copy_(value)
