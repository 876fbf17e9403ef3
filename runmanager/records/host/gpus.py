"""GPUs of this machine, found without torch, which would start CUDA in a driver; their measured peaks."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from runmanager.records.files.atomic_files import locked_folder, replace_file
from runmanager.records.files.file_errors import UNREADABLE, Int64

_VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
# Of those that are left by the first, a process sees those in the second, or if that is empty in CUDA's.
_AMD_VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_AMD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
_DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")
_UNKNOWN = "?"  # in a unique name that the driver has not read yet
_UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[^)]+)\)")
_SECONDS = 20  # nvidia-smi wakes a sleeping driver; a broken one must not hang the command


def find_gpus(
    environment: Mapping[str, str] | None = None,
    *,
    driver: Path = _DRIVER_FOLDER,
    devices: Path = _DEVICES,
    nodes: Path = _AMD_NODES,
) -> tuple[str, ...]:
    """Return the GPUs that PyTorch calls cuda and a process may use here, named as CUDA_VISIBLE_DEVICES names them.

    That variable decides, as far as its names are of GPUs that are here; without it all are. NVIDIA's driver lists them
    under /proc, else `nvidia-smi -L` does. They have their unique names, which are the same for all processes, if these
    are known; of a GPU in slices each slice is one. With a PyTorch for AMD they are AMD's, by the kernel's list. Empty
    where none is found.
    """
    environment = os.environ if environment is None else environment
    if _is_for_amd():
        return _of_amd(environment, nodes, devices)
    given = environment.get(_VISIBLE_VARIABLE)
    listed = _of_driver(driver, devices)
    if given is not None:
        return _parse_visible(given, known=listed or ())
    return _of_nvidia_smi() if listed is None else listed


def has_cuda() -> bool:
    """Whether this machine has a GPU that PyTorch calls cuda, and this process may use it."""
    return bool(find_gpus())


def visibility(names: str) -> dict[str, str]:
    """Return the variables that let a process see only the GPUs with these names, which have commas between them."""
    if not _is_for_amd():
        return {_VISIBLE_VARIABLE: names}
    return dict.fromkeys((_VISIBLE_VARIABLE, _AMD_VARIABLES[1]), names or "-1")  # AMD takes an empty one for not set


@cache
def _is_for_amd() -> bool:
    """Whether PyTorch is one for AMD's GPUs, from the file that it reads that from itself."""
    torch = importlib.util.find_spec("torch")
    try:
        text = "" if torch is None or torch.origin is None else Path(torch.origin).with_name("version.py").read_text()
    except OSError:
        return False
    return re.search(r"^hip\b[^=]*= *['\"]", text, re.MULTILINE) is not None


def _of_amd(environment: Mapping[str, str], nodes: Path, devices: Path) -> tuple[str, ...]:
    """Return AMD's GPUs that have a device file, by their numbers in HIP_VISIBLE_DEVICES.

    PyTorch compares unique names with those of AMD's tools, which it may lack.
    """
    names = []
    for folder in sorted(nodes.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            facts = dict(line.split(maxsplit=1) for line in (folder / "properties").read_text().splitlines())
        except OSError:  # of a GPU that a container was not given
            continue
        is_gpu = facts.get("simd_count", "0") != "0"
        if is_gpu and (devices / "dri" / f"renderD{facts.get('drm_render_minor')}").exists():
            names.append(f"GPU-{int(facts.get('unique_id', 0)):016x}")
    first, second = (environment.get(name) for name in _AMD_VARIABLES)
    if first is not None:
        names = [names[place] for place in _places(first, names)]
    second = second or environment.get(_VISIBLE_VARIABLE)
    return tuple(map(str, _places(second, names) if second else range(len(names))))


def _places(given: str, names: Sequence[str]) -> list[int]:
    """Return the places in the list `names` of the GPUs that a variable lists."""
    found = _parse_visible(given, known=names) if names else ()
    return [int(name) if name.isdecimal() else names.index(name) for name in found if name in names or name.isdecimal()]


def _parse_visible(given: str, *, known: Sequence[str]) -> tuple[str, ...]:
    """Parse such a variable as CUDA does: a name that is not of a `known` GPU ends the list, if any is known.

    A GPU is named by its index or by the beginning of its unique name.
    """
    names: list[str] = []
    for name in given.split(","):
        name = name.strip()
        if name.isdecimal():
            is_here = not known or int(name) < len(known)
        elif name.startswith("GPU-") and any(each.startswith("GPU-") for each in known):
            found = [each for each in known if each.startswith(name)]
            is_here = len(found) == 1
            name = found[0] if is_here else name
        else:
            is_here = name.startswith(("GPU-", "MIG-"))
        if not is_here:
            break
        names.append(name)
    return tuple(dict.fromkeys(names))


def _of_driver(driver: Path, devices: Path) -> tuple[str, ...] | None:
    """Return the GPUs that have a device file: a container may see the driver of GPUs that it was not given.

    None if the driver lists none, as under Windows, and if one is in slices, which it does not list.
    """
    names = []
    for information in sorted(driver.glob("*/information")):  # by place on the bus, as nvidia-smi lists them
        facts = {
            name: text.strip()
            for name, _, text in (line.partition(":") for line in information.read_text().splitlines())
        }
        minor = facts.get("Device Minor", "")
        if any(driver.parent.glob(f"capabilities/gpu{minor}/mig/gi*")):
            return None
        if (devices / f"nvidia{minor}").exists() and facts.get("GPU Excluded") != "Yes":
            names.append(facts.get("GPU UUID", _UNKNOWN))
    if not any(driver.glob("*")):
        return None
    return tuple(map(str, range(len(names)))) if any(_UNKNOWN in name for name in names) else tuple(names)


def gpu_names(*, driver: Path = _DRIVER_FOLDER) -> list[str]:
    """Return the model names of this machine's GPUs as NVIDIA's driver has them; empty without that driver."""
    lines = [line for path in sorted(driver.glob("*/information")) for line in path.read_text().splitlines()]
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]


def _of_nvidia_smi() -> tuple[str, ...]:
    """Return what `nvidia-smi -L` lists: below each GPU in slices its slices, which take its place."""
    names: list[str] = []
    for line in _nvidia_smi("-L"):
        found = _UUID.search(line)
        if line.startswith("GPU ") and found:
            names.append(found[1])
        elif found and names:
            if names[-1].startswith("GPU-"):
                del names[-1]
            names.append(found[1])
    return tuple(names)


def exclusive_gpus() -> list[str]:
    """Return the unique names of GPUs that an administrator lets only one process use at a time."""
    lines = (line.partition(", ") for line in _nvidia_smi("--query-gpu=uuid,compute_mode", "--format=csv,noheader"))
    return [name for name, _, mode in lines if mode.startswith("Exclusive")]


def _nvidia_smi(*arguments: str) -> list[str]:
    """Return the lines that nvidia-smi prints; none without it, or if it fails."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    try:
        return subprocess.run(
            [command, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


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
