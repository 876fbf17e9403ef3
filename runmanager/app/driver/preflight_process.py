"""What can only be asked with torch loaded, and is asked before anything runs: devices, data, somebody's own parts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runmanager.errors import DeviceUnavailableError, RunManagerError
from runmanager.records.host.memory import free_memory, in_gib
from runmanager.training.options.groups import TorchvisionModelOptions
from runmanager.training.options.step import Precision
from runmanager.validation import fault

__all__ = ["PreflightRequest", "missing_devices", "run_preflight"]

_HOST = ("auto", "cpu")


@dataclass(frozen=True)
class PreflightRequest:
    """Of what is to be run: the distinct pairs of dataset and model, and the devices that must be here.

    `for_accelerators` are settings that only these heed (`loader.pin_memory`), each with the devices of the cells that
    ask for it, one of which must be one. `precisions` are the distinct pairs of device and precision, for devices that
    are looked for here, and `compiled` the devices for which code is to be compiled here. `pieces` are the distinct
    triples of model, `micro_batch` and `on_oom`.
    """

    parts: Sequence[tuple[Any, Any]]
    devices: Sequence[str]
    for_accelerators: Mapping[str, Sequence[str]]
    precisions: Sequence[tuple[str, str]]
    compiled: Sequence[str]
    pieces: Sequence[tuple[Any, int | str | None, str]]
    data_root: Path


def missing_devices(names: Sequence[str]) -> dict[str, str]:
    """The devices that this host lacks, each with the error to say. For a process of its own, like `run_preflight`.

    Raises `UsageError` for a name that is no device's.
    """
    from runmanager.tracking.device.devices import resolve_device

    missing = {}
    for name in names:
        try:
            resolve_device(name)
        except DeviceUnavailableError as error:
            missing[name] = str(error)
    return missing


def run_preflight(questions: PreflightRequest) -> list[str]:
    """Fetch or build the data that is missing, and return every fault found, as readable lines.

    Runs in a process of its own, so that the driver never loads torch.
    """
    from runmanager.training.custom_target import resolve_target
    from runmanager.training.data.registry import prepare_dataset

    faults = [*missing_devices(questions.devices).values(), *_accelerator_faults(questions.for_accelerators)]
    faults += _precision_faults(questions.precisions) + _compiler_faults(questions.compiled)
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
                faults += _fitting_faults(dataset, models, questions)
        except RunManagerError as error:
            faults += str(error).splitlines()
    return faults


def _accelerator_faults(asked: Mapping[str, Sequence[str]]) -> list[str]:
    """What is wrong with asking for these settings on their devices: nothing, where one is or may be an accelerator."""
    from runmanager.tracking.device.devices import default_device

    idle = [name for name, devices in asked.items() if all(device in _HOST for device in devices)]
    if not idle or default_device().type != "cpu":
        return []
    return [fault(name, "be left out where `device=auto` finds no accelerator", "true") for name in idle]


def _compiler_faults(devices: Sequence[str]) -> list[str]:
    """What keeps code from being compiled for the CPU, where one of these devices is that or comes to it."""
    from runmanager.tracking.device.devices import default_device
    from runmanager.training.step.compiled import compiler_faults

    on_cpu = "cpu" in devices or ("auto" in devices and default_device().type == "cpu")
    return compiler_faults() if on_cpu else []


def _distinct(values: Iterable[Any]) -> list[Any]:
    listed = list(values)
    return [value for at, value in enumerate(listed) if value not in listed[:at]]


def _precision_faults(asked: Sequence[tuple[str, str]]) -> list[str]:
    """What the devices of this host cannot compute in; one that is missing is said elsewhere."""
    from runmanager.tracking.device.devices import resolve_device
    from runmanager.training.step.amp import precision_faults

    missing = missing_devices(_distinct(name for name, _ in asked))
    here = [(resolve_device(name), precision) for name, precision in asked if name not in missing]
    return [line for device, precision in here for line in precision_faults(Precision(precision), device)]


def _fitting_faults(dataset: Any, models: Sequence[Any], questions: PreflightRequest) -> list[str]:
    """What is wrong between the data as they are and the built-in models that are to learn from them, as is wanted."""
    import torch

    from runmanager.training.data.registry import load_dataset
    from runmanager.training.models.models import build_model
    from runmanager.training.step.micro_batches import piece_faults

    data = load_dataset(dataset, data_root=questions.data_root, seed=0)
    faults = []
    for model in models:
        if isinstance(model, Mapping):
            continue  # somebody's own is built once, by the run
        try:
            with torch.device("meta"):  # shapes alone: no memory, no random numbers
                network = build_model(model, in_shape=data.in_shape, num_classes=data.num_classes)
            faults += _size_faults(network)
            for micro_batch, on_oom in (each[1:] for each in questions.pieces if each[0] == model):
                faults += piece_faults(network, micro_batch=micro_batch, on_oom=on_oom)
        except RunManagerError as error:
            faults += str(error).splitlines()
        except (RuntimeError, TypeError) as error:  # more values than PyTorch can count
            faults.append(
                fault("model", "have weights that fit the free memory", str(error).splitlines()[0], "make it smaller")
            )
    return faults


def _size_faults(network: Any) -> list[str]:
    """What is wrong with the number of a model's weights, which are made in this host's memory, whatever the device."""
    needed = sum(each.numel() * each.element_size() for each in network.parameters())
    if needed <= (free := free_memory()):
        return []
    return [fault("model", f"have weights that fit the free memory, {in_gib(free)}", in_gib(needed), "make it smaller")]


def _model_faults(model: Any) -> list[str]:
    from runmanager.training.custom_target import check_arguments, resolve_target
    from runmanager.training.models.models import OFFERED
    from runmanager.training.models.torchvision_models import architecture_faults

    try:
        if isinstance(model, TorchvisionModelOptions):
            return architecture_faults(model.architecture)
        if isinstance(model, Mapping):
            check_arguments(resolve_target(model, group="model"), model, OFFERED, group="model")
    except RunManagerError as error:
        return str(error).splitlines()
    return []
