"""The settings of how an optimiser step is made, with the checks of their values. Loads no torch."""

from enum import StrEnum

from runmanager.validation import at_least_faults, did_you_mean, fault

__all__ = ["AUTO", "OutOfMemory", "Precision", "fixed_step_faults", "not_on_cpu", "step_faults"]

AUTO = "auto"


class Precision(StrEnum):
    """What products are computed in.

    `fp32`: in the type of the weights; `tf32`: those of float32 rounded to TF32; `bf16`, `fp16`: autocast to these.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"

    @property
    def is_cast(self) -> bool:
        """Whether it is another type than that of the weights."""
        return self in (Precision.BF16, Precision.FP16)


class OutOfMemory(StrEnum):
    """What becomes of a step that does not fit the memory: the run fails, or it is made again in smaller pieces."""

    FAIL = "fail"
    HALVE = "halve"


def step_faults(*, precision: str, micro_batch: int | str | None, on_oom: str, device: str) -> list[str]:
    """Every fault of these values, and of what they say together, as readable lines."""
    faults = _unknown("precision", precision, Precision) + _unknown("on_oom", on_oom, OutOfMemory)
    if isinstance(micro_batch, str):
        if micro_batch != AUTO:
            rule, way_out = "be null, auto or a number of samples", "null computes the whole batch at once"
            faults.append(fault("micro_batch", rule, repr(micro_batch), way_out))
    else:
        faults += at_least_faults("micro_batch", micro_batch, 1)
    if device == "cpu" and precision in (Precision.TF32, Precision.FP16):
        faults.append(not_on_cpu(precision))
    return faults


def fixed_step_faults(*, compile: bool, graphs: bool | str, micro_batch: int | str | None, on_oom: str) -> list[str]:
    """Every fault of settings that fix a step beforehand, and of what would change it afterwards beside them."""
    if isinstance(graphs, str) and graphs != AUTO:
        return [fault("graphs", "be true, false or auto", repr(graphs), "auto replays steps where that is sure to do")]
    faults = []
    for name in (name for name, value in (("compile", compile), ("graphs", graphs is True)) if value):
        if on_oom == OutOfMemory.HALVE:
            way_out = "smaller pieces are another step; give the size that fits as `micro_batch`"
            faults.append(fault("on_oom", f"be fail with `{name}=true`", on_oom, way_out))
    if graphs is True and micro_batch == AUTO:
        way_out = "on a GPU it halves what does not fit, and a captured step stays as it is"
        faults.append(fault("micro_batch", "be null or a number with `graphs=true`", micro_batch, way_out))
    return faults


def not_on_cpu(precision: str) -> str:
    """The fault of a precision that accelerators alone have."""
    return fault("precision", "be fp32 or bf16 on the CPU", precision, "or leave the CPU out")


def _unknown(key: str, value: str, kind: type[StrEnum]) -> list[str]:
    return [] if value in list(kind) else [fault(key, f"be one of {', '.join(kind)}", value, did_you_mean(value, kind))]
