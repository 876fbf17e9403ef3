"""2x2 max pooling with fewer passes over memory on a CPU than PyTorch's."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["max_pool_2x2"]


def max_pool_2x2(images: Tensor) -> Tensor:
    """Max-pool (batch, channels, height, width) to half the height and width; an odd last row or column is dropped.

    The values equal those of `torch.nn.functional.max_pool2d`. If several values of a square are the largest, one of
    them gets the gradient, as in PyTorch, but not always the same one. Not twice differentiable on a CPU.
    """
    is_plain = images.device.type == "cpu" and not images.shape[-1] % 2 and not images.shape[-2] % 2
    if not is_plain or torch.compiler.is_compiling():
        return F.max_pool2d(images, kernel_size=2, stride=2)
    pooled: Tensor = _MaxPool2x2.apply(images)
    return pooled


class _MaxPool2x2(torch.autograd.Function):
    """The maximum of two rows, then of two columns, each one vectorized comparison.

    PyTorch's kernel is vectorized over channels, which does not help a network with six of them. Backward needs one
    byte for each comparison, instead of the input and an index of eight bytes for each square.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        top, bottom = _halves(images, -2)
        rows = torch.maximum(top, bottom)
        left, right = _halves(rows, -1)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(top >= bottom, left >= right)
            is_channels_last = images.is_contiguous(memory_format=torch.channels_last)
            ctx.memory_format = torch.channels_last if is_channels_last else torch.contiguous_format
        return torch.maximum(left, right)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        is_top, is_left = ctx.saved_tensors
        return _routed(_routed(grad, is_left, -1, ctx.memory_format), is_top, -2, ctx.memory_format)


def _halves(images: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The values at even and at odd indices along a dimension."""
    return (images[..., ::2, :], images[..., 1::2, :]) if dim == -2 else (images[..., ::2], images[..., 1::2])


def _routed(grad: Tensor, is_first: Tensor, dim: int, memory_format: torch.memory_format) -> Tensor:
    """Expand a gradient along a dimension: each value goes to the first or to the second of two positions."""
    shape = list(grad.shape)
    shape[dim] *= 2
    whole = torch.empty(shape, dtype=grad.dtype, memory_format=memory_format)
    first, second = _halves(whole, dim)
    torch.mul(grad, is_first, out=first)
    torch.sub(grad, first, out=second)
    return whole
