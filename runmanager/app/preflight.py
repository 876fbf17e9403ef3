"""What can only be asked with torch loaded, and is asked before anything runs: devices, data, somebody's own parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runmanager.errors import DeviceUnavailableError, RunManagerError
from runmanager.training.options import TorchvisionModelOptions

__all__ = ["Questions", "preflight"]


@dataclass(frozen=True)
class Questions:
    """The distinct datasets, models and, for a single run, devices of what is to be run."""

    datasets: Sequence[Any]
    models: Sequence[Any]
    devices: Sequence[str]
    data_root: Path


def preflight(questions: Questions) -> list[str]:
    """Fetch or build the data that is missing, and return every fault found, as readable lines.

    Runs in a process of its own, so that the driver never loads torch.
    """
    from runmanager.tracking.devices import resolve_device
    from runmanager.training.datasets import prepare_dataset
    from runmanager.training.targets import resolve_target

    faults: list[str] = []
    for name in questions.devices:
        try:
            resolve_device(name)
        except DeviceUnavailableError as error:
            faults.append(str(error))
    for model in questions.models:
        faults += _model_faults(model)
    if not faults:  # a download takes its time: not for a command that cannot run
        for dataset in questions.datasets:
            try:
                if isinstance(dataset, Mapping):
                    resolve_target(dataset, group="dataset")
                prepare_dataset(dataset, data_root=questions.data_root)
            except RunManagerError as error:
                faults += str(error).splitlines()
    return faults


def _model_faults(model: Any) -> list[str]:
    from runmanager.training.models import OFFERED
    from runmanager.training.targets import check_arguments, resolve_target
    from runmanager.training.torchvision_models import architecture_faults

    try:
        if isinstance(model, TorchvisionModelOptions):
            return architecture_faults(model.architecture)
        if isinstance(model, Mapping):
            check_arguments(resolve_target(model, group="model"), model, OFFERED, group="model")
    except RunManagerError as error:
        return str(error).splitlines()
    return []
