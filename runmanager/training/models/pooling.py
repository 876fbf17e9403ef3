"""Max pooling of 2x2 squares, on a CPU in fewer passes over memory than PyTorch's."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["max_pool_2x2"]


def max_pool_2x2(images: Tensor) -> Tensor:
    """The largest of each square of (batch, channels, height, width), half as high and wide; an odd rest is left out.

    Values are those of `torch.nn.functional.max_pool2d`. Where several of a square are the largest, one of them gets
    the gradient, as there, but not always the same one. On a CPU it cannot be differentiated twice.
    """
    is_plain = images.device.type == "cpu" and not images.shape[-1] % 2 and not images.shape[-2] % 2
    if not is_plain or torch.compiler.is_compiling():
        return F.max_pool2d(images, kernel_size=2, stride=2)
    pooled: Tensor = _MaxPool2x2.apply(images)
    return pooled


class _MaxPool2x2(torch.autograd.Function):
    """First the larger of two rows, then of two columns, each a vectorized comparison.

    PyTorch's kernel is vectorized over channels, and a network with six of them leaves it nothing to vectorize. What
    backward needs is a byte a comparison, not the input and an index of eight bytes a square.
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
        return _given(_given(grad, is_left, -1, ctx.memory_format), is_top, -2, ctx.memory_format)


def _halves(images: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Every other one along a dimension, from the first and from the second on."""
    return (images[..., ::2, :], images[..., 1::2, :]) if dim == -2 else (images[..., ::2], images[..., 1::2])


def _given(grad: Tensor, is_first: Tensor, dim: int, memory_format: torch.memory_format) -> Tensor:
    """A gradient twice as large along a dimension, whose values went to the first or to the second of two."""
    shape = list(grad.shape)
    shape[dim] *= 2
    whole = torch.empty(shape, dtype=grad.dtype, memory_format=memory_format)
    first, second = _halves(whole, dim)
    torch.mul(grad, is_first, out=first)
    torch.sub(grad, first, out=second)
    return whole
