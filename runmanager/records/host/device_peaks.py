"""What a device can do at most, as measured on it, and the file of the user's cache that keeps it for later runs."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from runmanager.records.files.atomic_files import locked_folder, replace_file
from runmanager.records.files.file_errors import UNREADABLE

__all__ = ["DevicePeaks", "find_device_peaks", "read_device_peaks", "save_device_peaks"]


class DevicePeaks(msgspec.Struct, frozen=True, kw_only=True):
    """Measured best rates of one device, with so many threads; None is what was not measured.

    `threads` is None on an accelerator, whose rates do not hang on them. `flops_per_second` has the matrix product's
    rate by precision (`fp32`, `tf32`, `bf16`, `fp16`), in floating-point operations a second, a multiply-add counting
    as two. `copy_bytes_per_second` counts the bytes read and those written by a copy within the device's memory,
    `transfer_bytes_per_second` those that came from the host. `dispatch_seconds` is what one operation on next to no
    data takes when many follow each other.
    """

    device_name: str
    threads: int | None = None
    flops_per_second: dict[str, float] = {}
    copy_bytes_per_second: float | None = None
    transfer_bytes_per_second: float | None = None
    dispatch_seconds: float | None = None
    measured_at: str | None = None
    torch: str | None = None

    def measures_same_as(self, other: "DevicePeaks") -> bool:
        """Whether both were measured of the same thing: the device, with these threads and this version of torch."""
        return self._key == other._key

    @property
    def _key(self) -> tuple[str, int | None, str | None]:
        return self.device_name, self.threads, self.torch


def read_device_peaks(path: Path) -> list[DevicePeaks]:
    """All that are kept in the file; none where it is missing or cannot be read, as they can be measured again."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[DevicePeaks])
    except UNREADABLE:
        return []


def find_device_peaks(path: Path | None, *, device_name: str, threads: int | None, torch: str) -> DevicePeaks | None:
    """The ceilings of this device with so many threads and this version of torch, None where none were measured."""
    wanted = DevicePeaks(device_name=device_name, threads=threads, torch=torch)
    return next((each for each in read_device_peaks(path) if each.measures_same_as(wanted)), None) if path else None


def save_device_peaks(path: Path, measured: Iterable[DevicePeaks]) -> None:
    """Write these into the file, in the place of those that were measured of the same earlier. Raises `OSError`."""
    new = list(measured)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked_folder(path.parent):
        kept = [each for each in read_device_peaks(path) if not any(each.measures_same_as(other) for other in new)]
        replace_file(path, msgspec.json.format(msgspec.json.encode([*kept, *new]), indent=1))
