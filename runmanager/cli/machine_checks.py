"""What `runmanager doctor` looks at on the machine: Python, requirements, cores, folders, space."""

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from packaging.requirements import Requirement

from runmanager import __version__
from runmanager.records.files.paths import cache_folder, device_peaks_file
from runmanager.records.host.device_peaks import read_device_peaks
from runmanager.records.host.process import usable_cores
from runmanager.text import pluralize

__all__ = ["Check", "Level", "machine_checks"]

_DISTRIBUTION = "torch-runmanager"
_FEW_BYTES = 1 << 30  # a sweep of large models writes a checkpoint a run, hundreds of MiB each
_NO_BYTES = 100 << 20  # less than this, and event files and checkpoints of a small sweep do not fit
_FEW_SHARED_BYTES = 256 << 20  # DataLoader workers hand batches over in /dev/shm; Docker's default is 64 MiB


class Level(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Check:
    """One thing looked at: what was found, and where it is not well, the cure."""

    subject: str
    level: Level
    finding: str
    cure: str = ""


def machine_checks(output_root: Path) -> list[Check]:
    """Everything that can be known without importing torch."""
    return [
        python_check(sys.version_info[:2]),
        requirements_check(),
        cores_check(),
        load_check(os.getloadavg()[0], usable_cores()),
        folder_check("outputs", output_root, needed=True),
        space_check(output_root, free_bytes(output_root)),
        temporary_check(os.environ.get("TMPDIR")),
        cache_check(cache_folder()),
        ceilings_check(device_peaks_file()),
        data_check(os.environ.get("RUNMANAGER_DATA")),
        *shared_memory_checks(Path("/dev/shm")),
    ]


def python_check(version: tuple[int, int]) -> Check:
    """Whether this Python is one that the package runs on."""
    finding = f"Python {platform.python_version()} on {platform.system()}, runmanager {__version__}"
    if (3, 11) <= version < (3, 14):
        return Check("python", Level.OK, finding)
    return Check("python", Level.ERROR, finding, "use Python 3.11, 3.12 or 3.13")


def requirements_check() -> Check:
    """Whether every library that the package requires is installed, in a version that it asks for."""
    try:
        required = [Requirement(line) for line in importlib.metadata.requires(_DISTRIBUTION) or []]
    except importlib.metadata.PackageNotFoundError:
        finding = f"{_DISTRIBUTION} itself is not installed, so what it requires is not known"
        return Check("libraries", Level.WARNING, finding, "pip install -e . in its folder")
    required = [each for each in required if each.marker is None or each.marker.evaluate({"extra": ""})]
    faults = [fault for each in required if (fault := _fault(each))]
    if faults:
        cure = f"pip install --upgrade {_DISTRIBUTION}"
        return Check("libraries", Level.ERROR, "; ".join(faults), cure)
    return Check("libraries", Level.OK, f"all {len(required)} required libraries are installed, in fitting versions")


def _fault(requirement: Requirement) -> str | None:
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{requirement.name} is missing"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} must be {requirement.specifier}, got {version}"


def cores_check(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> Check:
    """How many cores there are, and whether a container or OMP_NUM_THREADS contradicts them."""
    cores = usable_cores()
    finding = f"{cores} of {pluralize(os.cpu_count() or cores, 'core')} usable"
    quota = _cpu_quota(quota_file)
    if quota is not None and quota < cores:
        cure = f"set OMP_NUM_THREADS={max(1, int(quota))}: more threads than that wait for each other"
        return Check("cpu", Level.WARNING, f"{finding}, but this container is limited to {quota:g}", cure)
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > cores:
        cure = f"set OMP_NUM_THREADS={cores} or fewer, or unset it"
        return Check("cpu", Level.WARNING, f"{finding}, but OMP_NUM_THREADS is {threads}", cure)
    return Check("cpu", Level.OK, finding)


def _cpu_quota(path: Path) -> float | None:
    """The cores' worth of time that a container may use (cgroup v2), None where there is no limit."""
    try:
        quota, period = path.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def load_check(load: float, cores: int) -> Check:
    """Whether others are using the machine: times measured beside them are noisy."""
    finding = f"{load:.1f} processes ran on average in the last minute"
    if load > cores:
        cure = "measure on a quiet machine; runs that met contention are marked so in the tables"
        return Check("load", Level.WARNING, finding, cure)
    return Check("load", Level.OK, finding)


def temporary_check(given: str | None) -> Check:
    """Whether there is room for what lives as long as a process: sockets of loader workers, downloads, checks."""
    cure = "set TMPDIR to a folder that can be written and has room"
    try:
        folder = Path(tempfile.gettempdir())
    except OSError:
        return Check("temporary", Level.ERROR, "no folder for temporary files can be written", cure)
    if given is not None and folder != Path(given).absolute():
        finding = f"TMPDIR is {given}, which cannot be written; {folder} is used in its place"
        return Check("temporary", Level.WARNING, finding, cure)
    free = free_bytes(folder)
    level = Level.OK if free >= _NO_BYTES else Level.WARNING
    return Check("temporary", level, f"{free / (1 << 30):.1f} GiB free in {folder}", "" if level is Level.OK else cure)


def cache_check(folder: Path | None) -> Check:
    """Whether what was built or measured once can be kept for the next time."""
    if folder is None:
        return Check("cache", Level.WARNING, "this user has no home folder to keep a cache in", "set XDG_CACHE_HOME")
    return folder_check("cache", folder, needed=False)


def ceilings_check(path: Path | None) -> Check:
    """Whether it is known what the devices can do at most; a run without that says less, and nothing wrong."""
    days = [(each.measured_at or "")[:10] for each in (read_device_peaks(path) if path else ())]
    if days:
        return Check("ceilings", Level.OK, f"{len(days)} measured, of devices and thread counts, last on {max(days)}")
    finding = "none measured; `runmanager doctor --calibrate` measures what the devices can do at most"
    return Check("ceilings", Level.OK, finding)


def folder_check(subject: str, folder: Path, *, needed: bool) -> Check:
    """Whether files can be written under `folder`, tried in it or in the nearest folder above that exists."""
    shown = folder.absolute()
    try:
        with tempfile.TemporaryFile(dir=_existing(shown)):
            return Check(subject, Level.OK, f"{shown} is writable")
    except OSError as error:
        cure = "give another one with `output_root=…`" if needed else "set XDG_CACHE_HOME; till then digits are rebuilt"
        level = Level.ERROR if needed else Level.WARNING
        return Check(subject, level, f"{shown} cannot be written: {error.strerror}", cure)


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def free_bytes(folder: Path) -> int:
    """Free space on the disk that holds `folder`, or that would."""
    return shutil.disk_usage(_existing(folder.absolute())).free


def space_check(folder: Path, free: int) -> Check:
    """Whether what runs write will fit."""
    finding = f"{free / (1 << 30):.1f} GiB free for {folder.absolute()}"
    if free >= _FEW_BYTES:
        return Check("disk", Level.OK, finding)
    level = Level.WARNING if free >= _NO_BYTES else Level.ERROR
    return Check("disk", level, finding, "make room, or write elsewhere with `output_root=…`")


def data_check(given: str | None) -> Check:
    """Where real datasets are looked for."""
    if given is None:
        return Check("data", Level.OK, f"datasets lie in {Path('data').absolute()} (RUNMANAGER_DATA is not set)")
    if Path(given).is_dir():
        return Check("data", Level.OK, f"datasets lie in {given} (RUNMANAGER_DATA)")
    finding = f"RUNMANAGER_DATA is {given}, and there is no such folder"
    return Check("data", Level.WARNING, finding, "make the folder, or unset RUNMANAGER_DATA")


def shared_memory_checks(folder: Path) -> list[Check]:
    """Whether loader workers have room to hand batches over; nothing to say where the system has no /dev/shm."""
    if not folder.is_dir():
        return []
    free = shutil.disk_usage(folder).free
    finding = f"{free / (1 << 20):.0f} MiB of shared memory free"
    if free >= _FEW_SHARED_BYTES:
        return [Check("shm", Level.OK, finding)]
    cure = "use num_workers=0, or start the container with --shm-size=1g"
    return [Check("shm", Level.WARNING, f"{finding}: loader workers may die of a bus error", cure)]
