"""Checks of `runmanager doctor` without torch: Python, requirements, cores, load, folders, disk space."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from importlib.machinery import ModuleSpec
from pathlib import Path

from packaging.requirements import Requirement

from runmanager import __version__
from runmanager.records.files.paths import cache_folder, device_peaks_file
from runmanager.records.host.gpus import read_device_peaks
from runmanager.records.host.process import cpu_quota, usable_cores
from runmanager.text import pluralize

_DISTRIBUTION = "torch-runmanager"
_WARNING_FREE_BYTES = 1 << 30  # a sweep of large models writes one checkpoint a run, hundreds of MiB each
_ERROR_FREE_BYTES = 100 << 20  # event files and checkpoints of a small sweep do not fit into less
_WARNING_SHARED_BYTES = 256 << 20  # DataLoader workers pass batches through /dev/shm; Docker's default is 64 MiB


class Level(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Check:
    """A check of one subject: the finding, and the remedy (`cure`) if it is not OK."""

    subject: str
    level: Level
    finding: str
    cure: str = ""


def machine_checks(output_root: Path) -> list[Check]:
    """Run every check that does not import torch."""
    return [
        python_check(sys.version_info[:2]),
        requirements_check(),
        plugins_check(importlib.util.find_spec("hydra_plugins")),
        cores_check(),
        load_check(os.getloadavg()[0], usable_cores()),
        folder_check("outputs", output_root, needed=True),
        space_check(output_root, free_bytes(output_root)),
        temporary_check(os.environ.get("TMPDIR")),
        cache_check(cache_folder()),
        device_peaks_check(device_peaks_file()),
        data_check(os.environ.get("RUNMANAGER_DATA")),
        *shared_memory_checks(Path("/dev/shm")),  # noqa: S108  # only its size is read
    ]


def python_check(version: tuple[int, int]) -> Check:
    """Check that the package supports this Python."""
    finding = f"Python {platform.python_version()} on {platform.system()}, runmanager {__version__}"
    if (3, 11) <= version < (3, 15):
        return Check("python", Level.OK, finding)
    return Check("python", Level.ERROR, finding, "use Python 3.11 to 3.14")


def requirements_check() -> Check:
    """Check that every required library is installed in a supported version."""
    try:
        required = [Requirement(line) for line in importlib.metadata.requires(_DISTRIBUTION) or []]
    except importlib.metadata.PackageNotFoundError:
        finding = f"{_DISTRIBUTION} is not installed, so its requirements are not known"
        return Check("libraries", Level.WARNING, finding, "pip install -e . in its folder")
    required = [each for each in required if each.marker is None or each.marker.evaluate({"extra": ""})]
    faults = [fault for each in required if (fault := _fault(each))]
    if faults:
        cure = f"pip install --upgrade {_DISTRIBUTION}"
        return Check("libraries", Level.ERROR, "; ".join(faults), cure)
    return Check("libraries", Level.OK, f"all {len(required)} required libraries are installed in supported versions")


def _fault(requirement: Requirement) -> str | None:
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{requirement.name} is missing"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} must be {requirement.specifier}, got {version}"


def plugins_check(package: ModuleSpec | None) -> Check:
    """Check that Hydra applications find our plugins in the namespace package `hydra_plugins`."""
    if package is not None and package.origin is not None:
        cure = (
            f"uninstall the distribution that has {package.origin}, or remove that file: the package has several owners"
        )
        return Check("hydra", Level.WARNING, "Hydra applications do not find our plugins: a package hides them", cure)
    folders = [] if package is None else list(package.submodule_search_locations or ())
    if any(Path(folder, "runmanager", "__init__.py").exists() for folder in folders):
        return Check("hydra", Level.OK, "every Hydra application has hydra/sweeper=runmanager")
    return Check("hydra", Level.WARNING, "Hydra's plugins of runmanager are not installed", "install the package again")


def cores_check() -> Check:
    """Check that neither a container's limit nor OMP_NUM_THREADS contradicts the usable cores."""
    cores = usable_cores()
    finding = f"{cores} of {pluralize(os.cpu_count() or cores, 'core')} usable"
    quota = cpu_quota()
    if quota is not None and quota < cores:
        cure = f"set OMP_NUM_THREADS={max(1, int(quota))}: further threads only wait for each other"
        return Check("cpu", Level.WARNING, f"{finding}, but this container is limited to {quota:g}", cure)
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > cores:
        cure = f"set OMP_NUM_THREADS={cores} or fewer, or unset it"
        return Check("cpu", Level.WARNING, f"{finding}, but OMP_NUM_THREADS is {threads}", cure)
    return Check("cpu", Level.OK, finding)


def load_check(load: float, cores: int) -> Check:
    """Check that the machine is idle: times measured under load are noisy."""
    finding = f"{load:.1f} processes ran on average in the last minute"
    if load > cores:
        cure = "measure on an idle machine; the tables mark runs under contention"
        return Check("load", Level.WARNING, finding, cure)
    return Check("load", Level.OK, finding)


def temporary_check(given: str | None) -> Check:
    """Check the folder for temporary files: sockets of loader workers, downloads, checks."""
    cure = "set TMPDIR to a writable folder with free space"
    try:
        folder = Path(tempfile.gettempdir())
    except OSError:
        return Check("temporary", Level.ERROR, "no writable folder for temporary files", cure)
    if given is not None and folder != Path(given).absolute():
        finding = f"TMPDIR is {given}, which cannot be written; {folder} is used instead"
        return Check("temporary", Level.WARNING, finding, cure)
    free = free_bytes(folder)
    level = Level.OK if free >= _ERROR_FREE_BYTES else Level.WARNING
    return Check("temporary", level, f"{free / (1 << 30):.1f} GiB free in {folder}", "" if level is Level.OK else cure)


def cache_check(folder: Path | None) -> Check:
    """Check that built datasets and measured peaks can be cached."""
    if folder is None:
        return Check("cache", Level.WARNING, "this user has no home folder for a cache", "set XDG_CACHE_HOME")
    return folder_check("cache", folder, needed=False)


def device_peaks_check(path: Path | None) -> Check:
    """Report whether device peaks were measured. Without them runs report less, but nothing wrong."""
    days = [(each.measured_at or "")[:10] for each in (read_device_peaks(path) if path else ())]
    if days:
        return Check("ceilings", Level.OK, f"{len(days)} measured, of devices and thread counts, last on {max(days)}")
    finding = "none measured; `runmanager doctor --calibrate` measures the devices' peak rates"
    return Check("ceilings", Level.OK, finding)


def folder_check(subject: str, folder: Path, *, needed: bool) -> Check:
    """Check that `folder`, or its nearest existing parent, is writable."""
    shown = folder.absolute()
    try:
        with tempfile.TemporaryFile(dir=_nearest_existing(shown)):
            return Check(subject, Level.OK, f"{shown} is writable")
    except OSError as error:
        cure = (
            "give another one with `output_root=…`" if needed else "set XDG_CACHE_HOME; until then digits are rebuilt"
        )
        level = Level.ERROR if needed else Level.WARNING
        return Check(subject, level, f"{shown} cannot be written: {error.strerror}", cure)


def _nearest_existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of `folder`, which need not exist yet."""
    return shutil.disk_usage(_nearest_existing(folder.absolute())).free


def space_check(folder: Path, free: int) -> Check:
    """Check that the disk has room for what runs write."""
    finding = f"{free / (1 << 30):.1f} GiB free for {folder.absolute()}"
    if free >= _WARNING_FREE_BYTES:
        return Check("disk", Level.OK, finding)
    level = Level.WARNING if free >= _ERROR_FREE_BYTES else Level.ERROR
    return Check("disk", level, finding, "free some space, or write elsewhere with `output_root=…`")


def data_check(given: str | None) -> Check:
    """Check the folder of downloaded datasets."""
    if given is None:
        return Check("data", Level.OK, f"datasets are in {Path('data').absolute()} (RUNMANAGER_DATA is not set)")
    if Path(given).is_dir():
        return Check("data", Level.OK, f"datasets are in {given} (RUNMANAGER_DATA)")
    finding = f"RUNMANAGER_DATA is {given}, which does not exist"
    return Check("data", Level.WARNING, finding, "create the folder, or unset RUNMANAGER_DATA")


def shared_memory_checks(folder: Path) -> list[Check]:
    """Check that loader workers have enough shared memory; no check on systems without /dev/shm."""
    if not folder.is_dir():
        return []
    free = shutil.disk_usage(folder).free
    finding = f"{free / (1 << 20):.0f} MiB of shared memory free"
    if free >= _WARNING_SHARED_BYTES:
        return [Check("shm", Level.OK, finding)]
    cure = "use num_workers=0, or start the container with --shm-size=1g"
    return [Check("shm", Level.WARNING, f"{finding}: loader workers may die of a bus error", cure)]
