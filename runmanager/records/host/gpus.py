"""GPUs of this machine, found without torch, which would start CUDA in a driver."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

__all__ = ["VISIBLE_VARIABLE", "find_gpus", "gpu_names", "has_cuda", "is_device_missing"]

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
