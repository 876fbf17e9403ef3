"""Measured peak rates of devices, cached in a file of the user."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from runmanager.records.files.atomic_files import locked_folder, replace_file
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.files.whole_numbers import Int64

__all__ = ["DevicePeaks", "find_device_peaks", "read_device_peaks", "save_device_peaks"]


class DevicePeaks(msgspec.Struct, frozen=True, kw_only=True):
    """Best rates measured on one device; None for what was not measured.

    `threads` is the number of torch threads, None on an accelerator, where it does not matter. `flops_per_second` maps
    the precision of a matrix product (`fp32`, `tf32`, `bf16`, `fp16`) to floating-point operations per second; a
    multiply-add counts as two. `copy_bytes_per_second` counts the bytes read and the bytes written by a copy within the
    device's memory, `transfer_bytes_per_second` the bytes copied from the host. `dispatch_seconds` is the time of one
    operation on almost no data, in a long sequence of them.
    """

    device_name: str
    threads: Int64 | None = None
    flops_per_second: dict[str, float] = {}
    copy_bytes_per_second: float | None = None
    transfer_bytes_per_second: float | None = None
    dispatch_seconds: float | None = None
    measured_at: str | None = None
    torch: str | None = None

    def measures_same_as(self, other: "DevicePeaks") -> bool:
        """Whether both are for the same device, number of threads and version of torch."""
        return self._key == other._key

    @property
    def _key(self) -> tuple[str, int | None, str | None]:
        return self.device_name, self.threads, self.torch


def read_device_peaks(path: Path) -> list[DevicePeaks]:
    """Read all peaks in the file; none if it is missing or unreadable, as they can be measured again."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[DevicePeaks])
    except UNREADABLE:
        return []


def find_device_peaks(path: Path | None, *, device_name: str, threads: int | None, torch: str) -> DevicePeaks | None:
    """Find the peaks of this device, number of threads and version of torch; None if they were not measured."""
    wanted = DevicePeaks(device_name=device_name, threads=threads, torch=torch)
    return next((each for each in read_device_peaks(path) if each.measures_same_as(wanted)), None) if path else None


def save_device_peaks(path: Path, measured: Iterable[DevicePeaks]) -> None:
    """Write peaks to the file, replacing earlier ones of the same device, threads and torch. Raises `OSError`."""
    new = list(measured)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked_folder(path.parent):
        kept = [each for each in read_device_peaks(path) if not any(each.measures_same_as(other) for other in new)]
        replace_file(path, msgspec.json.format(msgspec.json.encode([*kept, *new]), indent=1))
