"""Which GPUs this machine has, found without torch: CUDA would otherwise start in the driver."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

__all__ = ["VISIBLE_VARIABLE", "find_gpus", "gpu_names"]

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
_DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")
_SECONDS = 20  # nvidia-smi wakes a sleeping driver; a broken one must not hang the command


def find_gpus(
    environment: Mapping[str, str] | None = None, *, driver: Path = _DRIVER_FOLDER, devices: Path = _DEVICES
) -> tuple[str, ...]:
    """The GPUs that a process may use here, named as CUDA_VISIBLE_DEVICES names them; none where none are found.

    That variable is asked first, then NVIDIA's driver under /proc, then `nvidia-smi -L`.
    """
    given = (os.environ if environment is None else environment).get(VISIBLE_VARIABLE)
    if given is not None:
        return _listed(given)
    if driver.is_dir():
        return _numbered(_count_of_driver(driver, devices))
    return _numbered(_count_of_nvidia_smi())


def _listed(given: str) -> tuple[str, ...]:
    """As CUDA reads it: what follows a name of none is not there."""
    names: list[str] = []
    for name in given.split(","):
        name = name.strip()
        if not (name.isdecimal() or name.startswith(("GPU-", "MIG-"))):
            break
        names.append(name)
    return tuple(dict.fromkeys(names))


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(index) for index in range(count))


def _count_of_driver(driver: Path, devices: Path) -> int:
    """GPUs whose device file is there: a container may see the driver of GPUs that it was not given."""
    count = 0
    for information in driver.glob("*/information"):
        minors = [line.split()[-1] for line in information.read_text().splitlines() if line.startswith("Device Minor")]
        count += any((devices / f"nvidia{minor}").exists() for minor in minors)
    return count


def gpu_names(*, driver: Path = _DRIVER_FOLDER) -> list[str]:
    """What NVIDIA's driver calls the GPUs of this machine; none where it tells of none."""
    said = [line for path in sorted(driver.glob("*/information")) for line in path.read_text().splitlines()]
    return [line.partition(":")[2].strip() for line in said if line.startswith("Model:")]


def _count_of_nvidia_smi() -> int:
    command = shutil.which("nvidia-smi")
    if command is None:
        return 0
    try:
        said = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in said.splitlines())
