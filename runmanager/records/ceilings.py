"""What a device can do at most, as measured on it: the ceilings that a run's speed is held against."""

import msgspec

__all__ = ["Ceilings"]


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """Measured best rates of one device, with so many threads; None is what was not measured.

    `flops_per_second` has the matrix product's rate by precision (`fp32`, `tf32`, `bf16`, `fp16`), in floating-point
    operations a second, a multiply-add counting as two. `copy_bytes_per_second` counts the bytes read and those
    written by a copy within the device's memory, `transfer_bytes_per_second` those that came from the host.
    `dispatch_seconds` is what one operation on next to no data takes when many follow each other.
    """

    device_name: str
    threads: int | None = None
    flops_per_second: dict[str, float] = {}
    copy_bytes_per_second: float | None = None
    transfer_bytes_per_second: float | None = None
    dispatch_seconds: float | None = None
    measured_at: str | None = None
    torch: str | None = None
