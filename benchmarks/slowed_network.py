"""A network whose training steps are slowed down by a known share, for tests of comparisons."""

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
    """Small perceptron for samples of shape `in_shape` whose optimiser steps take longer by the share `slowdown`.

    `side` has no effect; it makes two cells of otherwise equal settings. Each process is slower by a further share,
    drawn from a uniform distribution with standard deviation `offset`.
    """

    def __init__(
        self, in_shape: Sequence[int], num_classes: int, side: int = 0, slowdown: float = 0.0, offset: float = 0.0
    ) -> None:
        super().__init__()
        inputs = math.prod(in_shape)
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(inputs, 16), torch.nn.ReLU(), torch.nn.Linear(16, num_classes)
        )
        # Lasts for the whole process. The hook is also active on the other side, so that only the share differs.
        slow_down(slowdown + random.SystemRandom().uniform(0, math.sqrt(12) * offset))  # independent of the run's seed

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, num_classes) of images (batch, *in_shape)."""
        scores: torch.Tensor = self.layers(images)
        return scores


def slow_down(share: float) -> RemovableHandle:
    """Extend each optimiser step of this process by `share` of the time since the previous one."""
    last = time.perf_counter()
    usual = math.inf

    def spin(*_: Any) -> None:
        nonlocal last, usual
        now = time.perf_counter()
        step = now - last
        # Between two turns, the time since the last step belongs to other runs.
        usual = min(usual * 1.01, step)
        until = now + share * (step if step < 20 * usual else usual)
        while time.perf_counter() < until:
            pass
        last = time.perf_counter()

    return register_optimizer_step_post_hook(spin)
