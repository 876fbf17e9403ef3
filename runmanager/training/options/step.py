"""Settings of how an optimiser step is computed, with their checks. Loads no torch."""

from enum import StrEnum

from runmanager.validation import fault

__all__ = ["AUTO", "OutOfMemory", "Precision", "cpu_precision_fault", "step_faults"]

AUTO = "auto"


class Precision(StrEnum):
    """The type in which products are computed.

    `fp32`: the weights' own type; `tf32`: float32 rounded to TF32; `bf16`, `fp16`: autocast to that type.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"

    @property
    def is_cast(self) -> bool:
        """Whether it differs from the type of the weights."""
        return self in (Precision.BF16, Precision.FP16)


class OutOfMemory(StrEnum):
    """What to do if a step does not fit the memory: fail the run, or repeat the step in smaller pieces."""

    FAIL = "fail"
    HALVE = "halve"


def step_faults(
    *,
    precision: str,
    channels_last: bool | str,
    micro_batch: int | str | None,
    on_oom: str,
    device: str,
    compile: bool,
    graphs: bool | str,
) -> list[str]:
    """Check the settings of a step that limits of single fields cannot express: one line for each fault."""
    faults = []
    if isinstance(channels_last, str) and channels_last != AUTO:
        rule, way_out = "be true, false or auto", "auto chooses by device and model"
        faults.append(fault("channels_last", rule, repr(channels_last), way_out))
    if isinstance(micro_batch, str) and micro_batch != AUTO:
        rule, way_out = "be null, auto or a number of samples", "null computes the whole batch at once"
        faults.append(fault("micro_batch", rule, repr(micro_batch), way_out))
    if device == "cpu" and precision in (Precision.TF32, Precision.FP16):
        faults.append(cpu_precision_fault(precision))
    if isinstance(graphs, str) and graphs != AUTO:
        return [*faults, fault("graphs", "be true, false or auto", repr(graphs), "auto replays steps where it is safe")]
    for name in (name for name, value in (("compile", compile), ("graphs", graphs is True)) if value):
        if on_oom == OutOfMemory.HALVE:
            way_out = "smaller pieces change the step; set a size that fits with `micro_batch`"
            faults.append(fault("on_oom", f"be fail with `{name}=true`", on_oom, way_out))
    return faults


def cpu_precision_fault(precision: str) -> str:
    """Fault of a precision that only accelerators support."""
    return fault("precision", "be fp32 or bf16 on the CPU", precision, "or leave the CPU out")
