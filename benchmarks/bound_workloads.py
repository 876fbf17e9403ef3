"""Datasets and models that each create one bottleneck: input, transfer, memory or kernel launches."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

__all__ = ["Elementwise", "ManySmallOperations", "SlowSamples", "SlowTransfers"]

_IMAGE = (1, 8, 8)


class SlowSamples(Dataset[Any]):
    """Dataset whose 200 training samples each take `milliseconds` to load; its 20 validation samples have no delay."""

    num_classes = 10

    def __init__(self, train: bool, milliseconds: float = 2.0) -> None:
        self._seconds = milliseconds / 1000 if train else 0.0
        self._count = 200 if train else 20

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self._seconds)
        return torch.full(_IMAGE, index / 200), index % self.num_classes


class SlowTransfers(Dataset[Any]):
    """Dataset whose batches each take `milliseconds` to transfer to the device."""

    num_classes = 10

    def __init__(self, train: bool, milliseconds: float = 20.0) -> None:
        self._count = 200 if train else 20
        _SlowToTransfer.seconds = milliseconds / 1000

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full(_IMAGE, index / 200).as_subclass(_SlowToTransfer), index % self.num_classes


class _SlowToTransfer(torch.Tensor):
    """Tensor with a slow `to`; tensors made from it, such as a batch, are slow too."""

    seconds = 0.0

    def to(self, *arguments: Any, **keywords: Any) -> torch.Tensor:
        time.sleep(self.seconds)
        return self.as_subclass(torch.Tensor).to(*arguments, **keywords)


class Elementwise(torch.nn.Module):
    """Memory-bound model: a few multiplications of one vector that is far larger than the caches."""

    def __init__(self, in_shape: Sequence[int], num_classes: int, length: int = 4_000_000, times: int = 4) -> None:
        super().__init__()
        self.vector = torch.nn.Parameter(torch.ones(length // num_classes * num_classes))
        self._num_classes, self._times = num_classes, times

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, num_classes) of images (batch, *in_shape)."""
        values: torch.Tensor = self.vector
        for _ in range(self._times):
            values = values * 1.0001
        return images.flatten(1).mean(1, keepdim=True) + values.view(self._num_classes, -1).mean(1)


class ManySmallOperations(torch.nn.Module):
    """Launch-bound model: hundreds of operations per step, each on a few numbers."""

    def __init__(self, in_shape: Sequence[int], num_classes: int, times: int = 400) -> None:
        super().__init__()
        self.scores = torch.nn.Parameter(torch.ones(num_classes))
        self._times = times

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, num_classes) of images (batch, *in_shape)."""
        scores: torch.Tensor = self.scores
        for _ in range(self._times):
            scores = -scores
        return images.flatten(1).mean(1, keepdim=True) + scores
