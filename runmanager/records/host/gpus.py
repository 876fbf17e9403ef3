"""GPUs of this machine, found without torch, which would start CUDA in a driver; their measured peaks."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from runmanager.records.files.atomic_files import locked_folder, replace_file
from runmanager.records.files.file_errors import UNREADABLE, Int64

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
_DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")
_AMD = Path("/dev/kfd")  # PyTorch's name for AMD's GPUs is cuda too
_SECONDS = 20  # nvidia-smi wakes a sleeping driver; a broken one must not hang the command


def find_gpus(
    environment: Mapping[str, str] | None = None, *, driver: Path = _DRIVER_FOLDER, devices: Path = _DEVICES
) -> tuple[str, ...]:
    """Return the GPUs that a process may use here, named as CUDA_VISIBLE_DEVICES names them; empty where none is found.

    The first source that exists decides: that variable, NVIDIA's driver under /proc, `nvidia-smi -L`.
    """
    given = (os.environ if environment is None else environment).get(VISIBLE_VARIABLE)
    if given is not None:
        return _parse_visible(given)
    if driver.is_dir():
        return _numbered(_count_in_driver(driver, devices))
    return _numbered(_count_in_nvidia_smi())


def has_cuda() -> bool:
    """Whether this machine has a GPU that PyTorch calls cuda, and this process may use it."""
    return bool(find_gpus()) or _AMD.exists()


def _parse_visible(given: str) -> tuple[str, ...]:
    """Parse CUDA_VISIBLE_DEVICES as CUDA does: an invalid name ends the list."""
    names: list[str] = []
    for name in given.split(","):
        name = name.strip()
        if not (name.isdecimal() or name.startswith(("GPU-", "MIG-"))):
            break
        names.append(name)
    return tuple(dict.fromkeys(names))


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(index) for index in range(count))


def _count_in_driver(driver: Path, devices: Path) -> int:
    """Count the GPUs that have a device file: a container may see the driver of GPUs that it was not given."""
    count = 0
    for information in driver.glob("*/information"):
        minors = [line.split()[-1] for line in information.read_text().splitlines() if line.startswith("Device Minor")]
        count += any((devices / f"nvidia{minor}").exists() for minor in minors)
    return count


def gpu_names(*, driver: Path = _DRIVER_FOLDER) -> list[str]:
    """Return the model names of this machine's GPUs as NVIDIA's driver has them; empty without that driver."""
    lines = [line for path in sorted(driver.glob("*/information")) for line in path.read_text().splitlines()]
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]


def _count_in_nvidia_smi() -> int:
    command = shutil.which("nvidia-smi")
    if command is None:
        return 0
    try:
        output = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in output.splitlines())


def is_device_missing(device: str | None) -> bool:
    """Whether a program asks for a CUDA device on a host without any. Imports no torch; of other kinds, it says no."""
    return device is not None and device.partition(":")[0] == "cuda" and not has_cuda()


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
