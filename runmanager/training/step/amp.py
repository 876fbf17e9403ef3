"""Mixed precision: autocasting, TF32 during a run, gradient scaling, and what a device supports."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch

from runmanager.tracking.torch_internals import scale_tensor
from runmanager.training.options.job import Precision, cpu_precision_fault
from runmanager.validation import fault

_AUTOCAST = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Context for a forward pass on `device` in this precision."""
    kind = _AUTOCAST.get(precision)
    return nullcontext() if kind is None else torch.autocast(device.type, dtype=kind)


@contextmanager
def float32_precision(precision: Precision) -> Iterator[None]:
    """Enable TF32 for float32 products if `precision` is `tf32`, disable it otherwise, and restore it at the end.

    PyTorch's default uses TF32 for convolutions and recurrent layers. It has an older and a newer API for this. If only
    the newer one is set, reading the older one raises, which compilers do; so both are set.
    """
    cudnn, mkldnn = cast(Any, torch.backends.cudnn), cast(Any, torch.backends.mkldnn)  # the stubs are incomplete
    newer: tuple[Any, ...] = (torch.backends.cuda.matmul, mkldnn.matmul, cudnn.conv, cudnn.rnn)
    before, newer_before = _older_flags(), [each.fp32_precision for each in newer]
    is_rounded = precision is Precision.TF32
    torch.set_float32_matmul_precision("high" if is_rounded else "highest")
    cudnn.allow_tf32 = is_rounded
    for each in newer:
        if not is_rounded and each.fp32_precision == "tf32":  # it may come from `torch.backends.fp32_precision`
            each.fp32_precision = "ieee"
    try:
        yield
    finally:
        if before is not None:
            torch.set_float32_matmul_precision(before[0])
            cudnn.allow_tf32 = before[1]
        for each, value in zip(newer, newer_before, strict=True):
            each.fp32_precision = value


@contextmanager
def cudnn_benchmark(is_on: bool) -> Iterator[None]:
    """Let cuDNN try its algorithms for each shape, or not, and restore it at the end."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = is_on
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _older_flags() -> tuple[str, bool] | None:
    """The older API's values for matrix products and cuDNN; None if the newer API was used, as reading then raises."""
    try:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return None


def precision_faults(precision: Precision, device: torch.device) -> list[str]:
    """Check that an existing `device` supports this precision."""
    if device.type == "cpu":
        return [cpu_precision_fault(precision)] if precision in (Precision.TF32, Precision.FP16) else []
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    if precision is Precision.TF32 and not is_nvidia:
        return [fault("precision", f"be another one on {device.type}", precision, "only NVIDIA's GPUs have TF32")]
    if precision not in (Precision.TF32, Precision.BF16) or not is_nvidia:
        return []
    if torch.cuda.get_device_capability(device) >= (8, 0):
        return []
    name = torch.cuda.get_device_name(device)
    return [fault("precision", f"be fp32 or fp16 on a {name}", precision, "it needs compute capability 8.0")]


def weight_faults(network: torch.nn.Module, precision: Precision) -> list[str]:
    """Check that autocasting applies to the weights: they must be float32."""
    others = {each.dtype for each in network.parameters() if each.is_floating_point()} - {torch.float32}
    if precision not in _AUTOCAST or not others:
        return []
    rule = f"be fp32 for a model with weights of {', '.join(sorted(map(str, others)))}"
    return [fault("precision", rule, precision, "only float32 is cast")]


class CountingScaler(torch.amp.GradScaler):
    """Gradient scaler that counts the steps it skips.

    A step whose gradients overflow float16 is skipped and the scale halved. With a fused optimiser this does not wait
    for the device.
    """

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._skipped_before = 0
        self._skipped_here: torch.Tensor | None = None  # read only at the end, because reading waits

    @property
    def num_skipped(self) -> int:
        """The number of steps skipped so far; waits for the device."""
        return self._skipped_before + (0 if self._skipped_here is None else int(self._skipped_here))

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Update the scale, depending on whether this step's gradients overflowed."""
        scale = scale_tensor(self)
        before = None if scale is None else scale.clone()
        super().update(new_scale)
        after = scale_tensor(self)
        if before is None or after is None:
            return
        if self._skipped_here is None:
            self._skipped_here = torch.zeros_like(before, dtype=torch.int64)
        self._skipped_here.add_(after < before)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "num_skipped": self.num_skipped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._skipped_before, self._skipped_here = state_dict["num_skipped"], None


def scaler_for(precision: Precision, device: torch.device) -> CountingScaler | None:
    """The gradient scaler for this precision; None if it needs none."""
    return CountingScaler(device.type) if precision is Precision.FP16 else None
