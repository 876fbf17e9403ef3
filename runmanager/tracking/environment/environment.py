"""The environment of a run: host, device, library versions, git commit, command line. Torch is imported late."""

import importlib.metadata
import os
import platform
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from runmanager.records.files.paths import device_peaks_file
from runmanager.records.host.gpus import DevicePeaks, find_device_peaks
from runmanager.records.host.process import usable_core_time, usable_cores
from runmanager.records.run.run_record import Environment
from runmanager.records.settings.secrets import SECRETS_VARIABLE, masked_words
from runmanager.records.settings.values import choices_of_groups, flatten
from runmanager.records.storage.ownership import DRIVEN_VARIABLE
from runmanager.tracking.environment.cell_process import of_cells_alone
from runmanager.tracking.environment.program_code import COMMIT_VARIABLE, commit_of

if TYPE_CHECKING:
    import torch


@cache
def cpu_model() -> str | None:
    """Return the CPU's model name, None if it is unknown."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or None


COMMAND_VARIABLE = "RUNMANAGER_COMMAND"
"""Environment variable with the command line of the sweep's driver."""

LIBRARIES = ("torch", "torchvision", "numpy", "tensorboard", "hydra-core", "omegaconf", "torch-runmanager")
"""The libraries whose versions a run records."""


def capture_environment(device: "torch.device", *, code: dict[str, str] | None = None) -> Environment:
    """Collect what is known when a run starts; its end adds the load then and the measured shares.

    `code` has the digest of each of the user's files, from `code_hashes`.
    """
    import torch

    from runmanager.tracking.device.devices import device_facts

    return msgspec.structs.replace(
        host_environment(code=code),
        torch_threads=torch.get_num_threads(),
        **device_facts(device, cpu_model=cpu_model()),
    )


def host_environment(*, code: dict[str, str] | None = None) -> Environment:
    """Collect what is known without torch when a run starts: all but its device and threads."""
    return Environment(
        host=socket.gethostname(),
        cpu_model=cpu_model(),
        num_cores=usable_cores(),
        usable_cores=usable_core_time(),
        python=platform.python_version(),
        libraries=library_versions(),
        **commit_of()._asdict(),
        code=code,
        command=command_line(),
        load_at_start=load_average(),
    )


def find_peaks(device: "torch.device", environment: Environment) -> DevicePeaks | None:
    """Look up the peak rates that `runmanager doctor --calibrate` measured here; None if not calibrated.

    On CPU they must have been measured with the run's number of threads.
    """
    import torch

    return find_device_peaks(
        device_peaks_file(),
        device_name=environment.device_name or "",
        threads=environment.torch_threads if device.type == "cpu" else None,
        torch=str(torch.__version__),
    )


def load_average() -> float:
    """Return the number of runnable processes, averaged over the last minute."""
    return os.getloadavg()[0]


def command_line() -> tuple[str, ...]:
    """Return the words of the command that started this run or its sweep, as they are recorded.

    Bytes outside UTF-8 are escaped, and secrets masked.
    """
    inherited = os.environ.get(COMMAND_VARIABLE)
    words = shlex.split(inherited) if inherited is not None else sys.argv
    return masked_words(word.encode(errors="backslashreplace").decode() for word in words)


def hydra_choices(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices of config groups of the Hydra job that this process runs (see `RunRecord`), if it runs one."""
    module: Any = sys.modules.get("hydra.core.hydra_config")
    if module is None or not module.HydraConfig.initialized():
        return {}
    return choices_of_groups(dict(module.HydraConfig.get().runtime.choices), flatten(settings))


@contextmanager
def environment_for_children(command: Sequence[str], *, code_folder: Path | None = None) -> Iterator[None]:
    """Pass command and commit to child processes through environment variables, so that no run calls git again.

    `code_folder` is that of the program that they run, by default that of this one.
    """
    variables = {
        COMMAND_VARIABLE: shlex.join(masked_words(_without_notification(command))),
        COMMIT_VARIABLE: commit_of(code_folder).as_text,
    }
    of_cell = of_cells_alone()  # a sweep that a cell starts has cells of its own
    others = (DRIVEN_VARIABLE, SECRETS_VARIABLE, *of_cell)
    before = {name: os.environ.get(name) for name in (*variables, *others)}
    os.environ.update(variables)
    for name in of_cell:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _without_notification(command: Sequence[str]) -> list[str]:
    """The command without the address of its notification, which may hold a secret, and changes nothing in a run."""
    end = command.index("--") if "--" in command else len(command)
    kept: list[str] = []
    words = iter(command[:end])
    for word in words:
        if word == "--notify":
            next(words, None)
        elif not word.startswith(("--notify=", "hydra.sweeper.notify=")):
            kept.append(word)
    return [*kept, *command[end:]]


@cache
def library_versions() -> dict[str, str]:
    """Return the installed versions of this package and the libraries that decide its results."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
