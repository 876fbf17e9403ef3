"""What products are computed in: autocasting, TF32 for the time of a run, and what a device can do."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from typing import Any

import torch

__all__ = ["Precision", "rounding_to", "scaler_for"]


class Precision(StrEnum):
    """`fp32`: as the weights are; `tf32`: float32 products rounded to TF32; the others: autocast to them."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """In which a forward pass on `device` is to run."""
        kind = _AUTOCAST.get(self)
        return nullcontext() if kind is None else torch.autocast(device.type, dtype=kind)


_AUTOCAST = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


def scaler_for(precision: Precision, device: torch.device) -> torch.amp.GradScaler | None:
    """What keeps small gradients of float16 from vanishing; None where nothing must."""
    return torch.amp.GradScaler(device.type) if precision is Precision.FP16 else None


@contextmanager
def rounding_to(precision: Precision) -> Iterator[None]:
    """Let CUDA round float32 products to TF32 or not, as `precision` says, and as before afterwards."""
    cudnn: Any = torch.backends.cudnn  # its types do not name all that it has
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)
    earlier = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = "tf32" if precision is Precision.TF32 else "ieee"
    try:
        yield
    finally:
        for backend, value in zip(backends, earlier, strict=True):
            backend.fp32_precision = value
