"""Where and with what a run is made: host, processor, versions, commit, load."""

import os
import platform
import socket
from pathlib import Path

import torch

from runmanager.records.files.paths import device_peaks_file
from runmanager.records.host.device_peaks import DevicePeaks, find_device_peaks
from runmanager.records.host.process import usable_cores
from runmanager.records.run.record import Environment
from runmanager.tracking.device.devices import device_facts
from runmanager.tracking.device.processor import cpu_model
from runmanager.tracking.environment.provenance import command_line, git_commit, library_versions

__all__ = ["capture_environment", "find_peaks", "load_average"]


def capture_environment(device: torch.device, *, code: dict[str, str] | None = None) -> Environment:
    """All that can be known at a run's start; `load_at_end` and the shares come at its end. `code` is known already."""
    commit, clean = git_commit(Path.cwd())
    return Environment(
        host=socket.gethostname(),
        cpu_model=cpu_model(),
        num_cores=usable_cores(),
        torch_threads=torch.get_num_threads(),
        python=platform.python_version(),
        libraries=library_versions(),
        commit=commit,
        commit_clean=clean,
        code=code,
        command=command_line(),
        load_at_start=load_average(),
        **device_facts(device, cpu_model=cpu_model()),
    )


def find_peaks(device: torch.device, environment: Environment) -> DevicePeaks | None:
    """What was measured of this device, with these threads, by `runmanager doctor --calibrate`; None if nothing was."""
    return find_device_peaks(
        device_peaks_file(),
        device_name=environment.device_name or "",
        threads=environment.torch_threads if device.type == "cpu" else None,
        torch=str(torch.__version__),
    )


def load_average() -> float:
    """Runnable processes, averaged over the last minute."""
    return os.getloadavg()[0]
