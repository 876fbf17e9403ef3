"""The launchers of this package, by the names that users choose, and the queue in which one of them may leave cells."""

import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from runmanager.launching.job_registry import JobQueue
from runmanager.launching.options import LocalOptions
from runmanager.launching.ray.options import RayOptions
from runmanager.launching.slurm.options import SlurmOptions


class LauncherChoice(NamedTuple):
    """A launcher: its name in Hydra applications other than the built-in job, its settings, and its class by name.

    `takes` are the options of a sweep that are among the settings, each with its name there; `instead` says of others
    what serves instead.
    """

    hydra_name: str
    sentence: str
    options: type[Any]
    launcher: str
    takes: Mapping[str, str]
    instead: Mapping[str, str] = {}


LAUNCHERS = {
    "local": LauncherChoice(
        "runmanager",
        "One process per run, on this machine.",
        LocalOptions,
        "runmanager.launching.hydra_launcher:LocalLauncher",
        {name: name for name in ("workers", "gpus", "gpus_per_run", "retries")},
    ),
    "slurm": LauncherChoice(
        "runmanager_slurm",
        "One job per run, on a Slurm cluster.",
        SlurmOptions,
        "runmanager.launching.slurm.launcher:SlurmLauncher",
        {"gpus_per_run": "gpus_per_node", "workers": "array_parallelism", "retries": "retries"},
        {"gpus": "use --gpus-per-run"},
    ),
    "ray": LauncherChoice(
        "runmanager_ray",
        "One task per run, on a Ray cluster.",
        RayOptions,
        "runmanager.launching.ray.launcher:RayLauncher",
        {name: name for name in ("workers", "gpus_per_run", "retries")},
    ),
}
"""By the name in the built-in job, which is that of `--launcher`."""


def register_launchers(*, preload: Sequence[str]) -> None:
    """Register all of them with Hydra; `preload` is a default of the local one."""
    from runmanager.launching.hydra_launcher import register, register_launcher
    from runmanager.launching.ray.launcher import RayLauncher
    from runmanager.launching.slurm import register_slurm

    register(preload=preload)
    register_slurm()
    register_launcher("ray", RayLauncher, RayOptions())


def local_queue() -> JobQueue | None:
    """Return the queue of the cluster, or None if its commands are not on PATH."""
    from runmanager.launching.slurm.queue import SlurmQueue

    return SlurmQueue() if shutil.which("squeue") else None
