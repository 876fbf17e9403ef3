"""GPUs of this machine: finding them without torch, and the slots on them that runs take.

torch would start CUDA in the driver.
"""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EVERY_GPU", "VISIBLE_VARIABLE", "GpuRequest", "GpuSlots", "Lease", "find_gpus", "gpu_names"]

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
_DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")
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


@dataclass(frozen=True)
class GpuRequest:
    """The GPUs that a run needs: any `count` of them, or the one at `index` among all, or `only_sees` every one.

    A run that names an index must see every GPU, as CUDA would number fewer of them differently.
    """

    count: int = 0
    index: int | None = None
    only_sees: bool = False


EVERY_GPU = GpuRequest(only_sees=True)
"""See every GPU without a slot on any."""


@dataclass(frozen=True)
class Lease:
    """The GPUs on which a run has a slot, and its CUDA_VISIBLE_DEVICES; None leaves the variable as it is."""

    gpus: tuple[str, ...] = ()
    visible: str | None = None


class GpuSlots:
    """`runs_per_gpu` slots on each GPU. Where no GPU is known, a run that requests one sees what the driver sees.

    `are_given`: the user listed the GPUs, so a run sees no other, even where the list is empty.
    `are_packed`: fill one GPU before taking the next.
    """

    def __init__(
        self, gpus: Sequence[str] = (), *, runs_per_gpu: int = 1, are_given: bool = False, are_packed: bool = False
    ) -> None:
        self.gpus = tuple(gpus)
        self._runs_per_gpu = runs_per_gpu
        self._hides_others = are_given or bool(gpus)
        self._are_packed = are_packed
        self._taken: Counter[str] = Counter()

    def take(self, request: GpuRequest) -> Lease | None:
        """Take the slots that a run requests; None if too few are free now.

        A request for more GPUs than exist gets all of them, and the run reports what it lacks.
        """
        if request.only_sees or request.index is not None:
            return self._take_index(request.index)
        free = [gpu for gpu in self.gpus if self._taken[gpu] < self._runs_per_gpu]
        num_wanted = min(request.count, len(self.gpus))
        if len(free) < num_wanted:
            return None
        if not self._are_packed:
            free.sort(key=lambda gpu: self._taken[gpu])  # stable: in the order given
        chosen = free[:num_wanted]
        self._taken.update(chosen)
        is_restricted = self._hides_others or request.count == 0
        return Lease(tuple(chosen), ",".join(chosen) if is_restricted else None)

    def _take_index(self, index: int | None) -> Lease | None:
        chosen = self.gpus[index : index + 1] if index is not None else ()
        if any(self._taken[gpu] >= self._runs_per_gpu for gpu in chosen):
            return None
        self._taken.update(chosen)
        return Lease(chosen, ",".join(self.gpus) if self._hides_others else None)

    def release(self, lease: Lease) -> None:
        """Free the slots of a run that has ended."""
        self._taken.subtract(lease.gpus)
