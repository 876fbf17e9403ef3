"""What products are computed in: autocasting, TF32 for the time of a run, the scaler, and what a device can do."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch

from runmanager.training.options.step import Precision, cpu_precision_fault
from runmanager.validation import fault

__all__ = ["CountingScaler", "autocast", "precision_faults", "rounding_to", "scaler_for", "weight_faults"]

_AUTOCAST = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """In which a forward pass on `device` is to run."""
    kind = _AUTOCAST.get(precision)
    return nullcontext() if kind is None else torch.autocast(device.type, dtype=kind)


@contextmanager
def rounding_to(precision: Precision) -> Iterator[None]:
    """Let products of float32 be rounded to TF32 or not, as `precision` says, and as before afterwards.

    PyTorch's own default rounds those of convolutions and of recurrent layers. It has older and newer words for it,
    and whoever sets only the newer ones makes reading the older ones raise, which compilers do: so all are set.
    """
    cudnn, mkldnn = cast(Any, torch.backends.cudnn), cast(Any, torch.backends.mkldnn)  # types name not all they have
    newer: tuple[Any, ...] = (torch.backends.cuda.matmul, mkldnn.matmul, cudnn.conv, cudnn.rnn)
    before, words = _older_words(), [each.fp32_precision for each in newer]
    is_rounded = precision is Precision.TF32
    torch.set_float32_matmul_precision("high" if is_rounded else "highest")
    cudnn.allow_tf32 = is_rounded
    for each in newer:
        if not is_rounded and each.fp32_precision == "tf32":  # as `torch.backends.fp32_precision` says for all
            each.fp32_precision = "ieee"
    try:
        yield
    finally:
        if before is not None:
            torch.set_float32_matmul_precision(before[0])
            cudnn.allow_tf32 = before[1]
        for each, word in zip(newer, words, strict=True):
            each.fp32_precision = word


def _older_words() -> tuple[str, bool] | None:
    """What they say of matrix products and of cuDNN; None where they will not, as somebody used the newer ones."""
    try:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return None


def precision_faults(precision: Precision, device: torch.device) -> list[str]:
    """What `device`, which is there, cannot compute in."""
    if device.type == "cpu":
        return [cpu_precision_fault(precision)] if precision in (Precision.TF32, Precision.FP16) else []
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    if precision is Precision.TF32 and not is_nvidia:
        return [fault("precision", f"be another one on {device.type}", precision, "NVIDIA's GPUs alone have TF32")]
    if precision not in (Precision.TF32, Precision.BF16) or not is_nvidia:
        return []
    if torch.cuda.get_device_capability(device) >= (8, 0):
        return []
    name = torch.cuda.get_device_name(device)
    return [fault("precision", f"be fp32 or fp16 on a {name}", precision, "it came with compute capability 8.0")]


def weight_faults(network: torch.nn.Module, precision: Precision) -> list[str]:
    """A fault for weights that autocasting would pass over."""
    others = {each.dtype for each in network.parameters() if each.is_floating_point()} - {torch.float32}
    if precision not in _AUTOCAST or not others:
        return []
    rule = f"be fp32 for a model with weights of {', '.join(sorted(map(str, others)))}"
    return [fault("precision", rule, precision, "only float32 is cast")]


class CountingScaler(torch.amp.GradScaler):
    """Keeps small gradients of float16 from vanishing, and counts the steps that it left out.

    A step whose gradients overflow is left out and the scale halved, without waiting for the device where the
    optimiser is fused.
    """

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._skipped_before = 0
        self._skipped_here: torch.Tensor | None = None  # read at the end only: to read waits

    @property
    def num_skipped(self) -> int:
        """Steps left out so far; waits for the device."""
        return self._skipped_before + (0 if self._skipped_here is None else int(self._skipped_here))

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Choose the next step's scale, from whether this step's gradients overflowed."""
        before = None if self._scale is None else self._scale.clone()
        super().update(new_scale)
        if before is None or self._scale is None:
            return
        if self._skipped_here is None:
            self._skipped_here = torch.zeros_like(before, dtype=torch.int64)
        self._skipped_here.add_(self._scale < before)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "num_skipped": self.num_skipped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._skipped_before, self._skipped_here = state_dict["num_skipped"], None


def scaler_for(precision: Precision, device: torch.device) -> CountingScaler | None:
    """The scaler that a precision needs."""
    return CountingScaler(device.type) if precision is Precision.FP16 else None
