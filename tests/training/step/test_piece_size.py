"""The piece size that is fast on a CPU follows from the sizes of a network's tensors."""

import random

import torch
from torch import nn

from runmanager.training.models.builtin_models import Network
from runmanager.training.step.automatic_step import fast_piece_size

LARGEST = 30 * 2**20


def test_the_largest_tensor_decides() -> None:
    layers = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 4))
    assert fast_piece_size(layers, (1024,)) == LARGEST // 4096
    assert fast_piece_size(nn.Sequential(nn.Linear(4, 2048), nn.ReLU()), (4,)) == LARGEST // 8192
    # Six channels of 24x24 are padded to 16.
    assert fast_piece_size(Network(), (1, 28, 28)) == LARGEST // (16 * 24 * 24 * 4)
    wide = nn.Sequential(nn.Conv2d(3, 24, 3), nn.Flatten())
    assert fast_piece_size(wide, (3, 34, 34)) == LARGEST // (32 * 32 * 32 * 4)


def test_large_weights_and_models_that_need_data_have_no_size() -> None:
    class Looking(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images * images.sum().item()

    assert fast_piece_size(Looking(), (4,)) is None
    assert fast_piece_size(nn.Linear(2048, 2048), (2048,)) is None
    assert fast_piece_size(nn.Flatten(), (4,)) is None


def test_nothing_is_drawn_or_counted() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            self.seen += len(images)
            random.random()
            return self.layers(images)

    network = Counting()
    states = random.getstate(), torch.get_rng_state()
    assert fast_piece_size(network, (4,)) is not None and network.seen.item() == 0
    assert random.getstate() == states[0] and torch.equal(torch.get_rng_state(), states[1])
