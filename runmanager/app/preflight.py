"""What can only be asked with torch loaded, and is asked before anything runs: devices, data, somebody's own parts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runmanager.errors import DeviceUnavailableError, RunManagerError
from runmanager.training.faults import fault
from runmanager.training.options import TorchvisionModelOptions

__all__ = ["Questions", "missing_devices", "preflight"]


@dataclass(frozen=True)
class Questions:
    """Of what is to be run: the distinct pairs of dataset and model, and the devices that must be here.

    `sending` are settings about how batches are sent (`loader.pin_memory`), each with the devices of the cells that
    ask for it, one of which must gain by it.
    """

    parts: Sequence[tuple[Any, Any]]
    devices: Sequence[str]
    sending: Mapping[str, Sequence[str]]
    data_root: Path


def missing_devices(names: Sequence[str]) -> dict[str, str]:
    """The devices that this host lacks, each with the error to say. For a process of its own, like `preflight`.

    Raises `UsageError` for a name that is no device's.
    """
    from runmanager.tracking.devices import resolve_device

    missing = {}
    for name in names:
        try:
            resolve_device(name)
        except DeviceUnavailableError as error:
            missing[name] = str(error)
    return missing


def preflight(questions: Questions) -> list[str]:
    """Fetch or build the data that is missing, and return every fault found, as readable lines.

    Runs in a process of its own, so that the driver never loads torch.
    """
    from runmanager.training.datasets import prepare_dataset
    from runmanager.training.targets import resolve_target

    faults = [*missing_devices(questions.devices).values(), *_sending_faults(questions.sending)]
    for model in _distinct(model for _, model in questions.parts):
        faults += _model_faults(model)
    if faults:
        return faults  # a download takes its time: not for a command that cannot run
    for dataset in _distinct(dataset for dataset, _ in questions.parts):
        models = [model for with_dataset, model in questions.parts if with_dataset == dataset]
        try:
            if isinstance(dataset, Mapping):
                resolve_target(dataset, group="dataset")
            prepare_dataset(dataset, data_root=questions.data_root)
            if not isinstance(dataset, Mapping):  # somebody's own is made once, by the run: it may be dear
                faults += _fitting_faults(dataset, models, questions.data_root)
        except RunManagerError as error:
            faults += str(error).splitlines()
    return faults


def _sending_faults(sending: Mapping[str, Sequence[str]]) -> list[str]:
    """What is wrong with asking for these settings on their devices: nothing, where one is or may be an accelerator."""
    from runmanager.tracking.devices import default_device

    idle = [name for name, devices in sending.items() if all(device in ("auto", "cpu") for device in devices)]
    if not idle or default_device().type != "cpu":
        return []
    return [fault(name, "be left out where `device=auto` finds no accelerator", "true") for name in idle]


def _distinct(values: Iterable[Any]) -> list[Any]:
    listed = list(values)
    return [value for at, value in enumerate(listed) if value not in listed[:at]]


def _fitting_faults(dataset: Any, models: Sequence[Any], data_root: Path) -> list[str]:
    """What is wrong between the data as they are and the built-in models that are to learn from them."""
    import torch

    from runmanager.training.datasets import load_dataset
    from runmanager.training.models import build_model

    data = load_dataset(dataset, data_root=data_root, seed=0)
    faults = []
    for model in models:
        if isinstance(model, Mapping):
            continue  # somebody's own is built once, by the run
        try:
            with torch.device("meta"):  # shapes alone: no memory, no random numbers
                build_model(model, in_shape=data.in_shape, num_classes=data.num_classes)
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
