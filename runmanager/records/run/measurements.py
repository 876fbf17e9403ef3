"""What was measured of a run beside its epochs: the work of a step, memory, the accelerator's own meters."""

import msgspec

from runmanager.records.host.device_peaks import DevicePeaks

__all__ = ["UNKNOWN_WORK", "Measurements"]

UNKNOWN_WORK = "the work of a step is not known"
"""How a note begins that says why a run's work could not be counted."""


class Measurements(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a whole run; None is what was not measured.

    `first_batch_seconds` is the time from asking the loader anew to its first batch, in the first epoch; workers are
    started in it. `compile_seconds` is what compiling took before the first epoch of the last attempt; no epoch has it.
    `precision` is what the weights' products are computed in: `fp32`, `tf32`, `bf16`, `fp16`, `fp64`.

    A step's work is that of one full batch: forward, backward and, where it can be followed, the optimiser's step; not
    the loss. `flop_per_step` counts a multiply-add of a matrix product, convolution or attention as two, and no other
    arithmetic; `operations_per_step` the operators dispatched, without views; `bytes_per_step` what these read and
    wrote, were nothing kept in caches.

    Peaks are of the training, and of the device's memory but for `peak_host_bytes`, which is what this process had in
    the host's memory at most since it began. Shares are fractions in [0, 1]; the accelerator's meters are means over
    looks during the epochs, `gpu_throttled_share` and `gpu_others_share` the share of looks that found it throttled or
    other processes computing on it; energy is a median over measured epochs, with evaluation.
    """

    first_batch_seconds: float | None = None
    steps_per_epoch: int | None = None
    compile_seconds: float | None = None
    precision: str | None = None
    flop_per_step: int | None = None
    operations_per_step: int | None = None
    bytes_per_step: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_host_bytes: int | None = None
    gpu_utilization: float | None = None
    gpu_power_watts: float | None = None
    gpu_energy_joules_per_epoch: float | None = None
    gpu_clock_hertz: float | None = None
    gpu_throttled_share: float | None = None
    gpu_others_share: float | None = None
    ceilings: DevicePeaks | None = None
