"""A network whose training steps take longer by a known share: what a comparison is to find."""

import math
import random
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

__all__ = ["Slowed", "slow_down"]


class Slowed(torch.nn.Module):
    """A small perceptron for samples of shape `in_shape`, whose optimiser steps are longer by the share `slowdown`.

    `side` changes nothing: it lets two runs of the same settings be two cells. Each process is slower by a further
    share, drawn evenly with the standard deviation `offset`.
    """

    def __init__(
        self, in_shape: Sequence[int], num_classes: int, side: int = 0, slowdown: float = 0.0, offset: float = 0.0
    ) -> None:
        super().__init__()
        inputs = math.prod(in_shape)
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(inputs, 16), torch.nn.ReLU(), torch.nn.Linear(16, num_classes)
        )
        # For as long as the run's process lives; on the other side too, so that the share is all that differs.
        slow_down(slowdown + random.SystemRandom().uniform(0, math.sqrt(12) * offset))  # whatever the run's seed is

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores (batch, num_classes) of images (batch, *in_shape)."""
        scores: torch.Tensor = self.layers(images)
        return scores


def slow_down(share: float) -> RemovableHandle:
    """Make each optimiser step of this process longer by `share` of the time since the one before."""
    last = time.perf_counter()
    usual = math.inf

    def spin(*_: Any) -> None:
        nonlocal last, usual
        now = time.perf_counter()
        step = now - last
        # Between two turns the time since the last step is that of the others.
        usual = min(usual * 1.01, step)
        until = now + share * (step if step < 20 * usual else usual)
        while time.perf_counter() < until:
            pass
        last = time.perf_counter()

    return register_optimizer_step_post_hook(spin)
