"""Where and with what a run is made: host, processor, versions, commit, load."""

import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import torch

from runmanager.records.run import Environment
from runmanager.tracking.devices import device_facts

__all__ = ["COMMIT_VARIABLE", "capture_environment", "commit_of", "load_average"]

COMMIT_VARIABLE = "RUNMANAGER_COMMIT"
"""Environment variable that names the commit, `<sha>` or `<sha>-dirty`, where git need not or cannot be asked."""

_LIBRARIES = ("torch", "torchvision", "numpy", "tensorboard", "hydra-core", "omegaconf", "torch-runmanager")


def capture_environment(device: torch.device) -> Environment:
    """All that can be known at a run's start; `load_at_end` and the shares come at its end."""
    commit, clean = commit_of(Path.cwd())
    return Environment(
        host=socket.gethostname(),
        cpu_model=_cpu_model(),
        num_cores=_usable_cores(),
        torch_threads=torch.get_num_threads(),
        python=platform.python_version(),
        libraries=_versions(),
        commit=commit,
        commit_clean=clean,
        command=tuple(sys.argv),
        load_at_start=load_average(),
        **device_facts(device, cpu_model=_cpu_model()),
    )


def load_average() -> float:
    """Runnable processes, averaged over the last minute."""
    return os.getloadavg()[0]


@cache
def commit_of(folder: Path) -> tuple[str | None, bool | None]:
    """The git commit of `folder` and whether its tracked files are as committed; None where there is none.

    Asked once a process: a sweep's driver asks, and hands the answer to its runs in `RUNMANAGER_COMMIT`.
    """
    given = os.environ.get(COMMIT_VARIABLE)
    if given is not None:
        return (given.removesuffix("-dirty") or None), (not given.endswith("-dirty") if given else None)
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return commit, None if changes is None else changes == ""


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # fixed words, no shell
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found["torch"] = torch.__version__  # says which build: 2.15.0+cu130
    return found


@cache
def _cpu_model() -> str | None:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or None


def _usable_cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
