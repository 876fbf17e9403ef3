"""Checks before the first run that need torch: devices, datasets, models. They run in another process."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runmanager.errors import DeviceUnavailableError, RunManagerError
from runmanager.records.host.process import format_gib, free_memory
from runmanager.training.options.groups import TorchvisionModelOptions
from runmanager.training.options.job import Precision
from runmanager.validation import fault

_HOST_DEVICES = ("auto", "cpu")


@dataclass(frozen=True)
class Parts:
    """What must fit together in a cell; `monitored` are the metrics that settings name, by the setting."""

    dataset: Any
    model: Any
    loss: Mapping[str, Any]
    metrics: Mapping[str, Any]
    monitored: Mapping[str, str | None]


@dataclass(frozen=True)
class PreflightRequest:
    """What to check of the cells to run.

    `parts`: the distinct combinations of dataset, model, loss and metrics. `devices`: those that this host must have.
    `accelerator_settings`: settings that only accelerators use (`loader.pin_memory`), each with the devices of the
    cells that set it; one must be an accelerator. `precisions`: the distinct pairs of device and precision on this
    host. `compiled`: the devices for which code is compiled on this host. `pieces`: the distinct tuples of model, loss,
    `micro_batch` and `on_oom`. `downloads`: whether missing datasets are downloaded; otherwise only the folder for them
    is checked.
    """

    parts: Sequence[Parts]
    devices: Sequence[str]
    accelerator_settings: Mapping[str, Sequence[str]]
    precisions: Sequence[tuple[str, str]]
    compiled: Sequence[str]
    pieces: Sequence[tuple[Any, Mapping[str, Any], int | str | None, str]]
    data_root: Path
    downloads: bool = True


def missing_devices(names: Sequence[str]) -> dict[str, str]:
    """Return the devices that this host lacks, each with its error. Called in another process, as it imports torch.

    Raises `UsageError` for an invalid device name.
    """
    from runmanager.tracking.device.devices import resolve_device

    missing = {}
    for name in names:
        try:
            resolve_device(name)
        except DeviceUnavailableError as error:
            missing[name] = str(error)
    return missing


def run_preflight(request: PreflightRequest) -> list[str]:
    """Fetch or build missing datasets, if the request says so, and return every fault as a message.

    Called in another process, so that the driver never imports torch.
    """
    from runmanager.training.custom_targets import resolve_target
    from runmanager.training.datasets.registry import download_faults, must_be_downloaded, prepare_dataset

    faults = [*missing_devices(request.devices).values(), *_accelerator_faults(request.accelerator_settings)]
    faults += _precision_faults(request.precisions) + _compiler_faults(request.compiled)
    for model in _distinct(each.model for each in request.parts):
        faults += _model_faults(model)
    faults += _criteria_faults(request.parts)
    if faults:
        return faults  # no slow download for a command that cannot run
    for dataset in _distinct(each.dataset for each in request.parts):
        parts = [each for each in request.parts if each.dataset == dataset]
        try:
            if isinstance(dataset, Mapping):
                resolve_target(dataset, group="dataset")
            if not request.downloads and must_be_downloaded(dataset, data_root=request.data_root):
                faults += download_faults(dataset, data_root=request.data_root)
                continue
            prepare_dataset(dataset, data_root=request.data_root)
            if not isinstance(dataset, Mapping):  # a custom dataset is built only by the run, as it may be slow
                faults += _fitting_faults(dataset, parts, request)
        except RunManagerError as error:
            faults += str(error).splitlines()
    return _distinct(faults)


def _criteria_faults(parts: Sequence[Parts]) -> list[str]:
    """Faults of losses and metrics that are found without data."""
    from runmanager.training.criteria import build_loss, direction_faults, metric_argument_faults

    faults = []
    for loss in _distinct(each.loss for each in parts):
        try:
            build_loss(loss)
        except RunManagerError as error:
            faults += str(error).splitlines()
    for metrics in _distinct(each.metrics for each in parts):
        faults += metric_argument_faults(metrics)
    if not faults:
        for each in parts:
            faults += direction_faults(each.metrics, each.monitored)
    return faults


def _accelerator_faults(settings: Mapping[str, Sequence[str]]) -> list[str]:
    """Faults of accelerator settings whose cells have no accelerator."""
    from runmanager.tracking.device.devices import default_device

    unused = [name for name, devices in settings.items() if all(device in _HOST_DEVICES for device in devices)]
    if not unused or default_device().type != "cpu":
        return []
    return [fault(name, "be left out where `device=auto` finds no accelerator", "true") for name in unused]


def _compiler_faults(devices: Sequence[str]) -> list[str]:
    """Faults of the compiler for the CPU, if one of the devices is the CPU or resolves to it."""
    from runmanager.tracking.device.devices import default_device
    from runmanager.training.step.compiled import compiler_faults

    on_cpu = "cpu" in devices or ("auto" in devices and default_device().type == "cpu")
    return compiler_faults() if on_cpu else []


def _distinct(values: Iterable[Any]) -> list[Any]:
    listed = list(values)
    return [value for index, value in enumerate(listed) if value not in listed[:index]]


def _precision_faults(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Faults of precisions that this host's devices do not support; missing devices are reported elsewhere."""
    from runmanager.tracking.device.devices import resolve_device
    from runmanager.training.step.amp import precision_faults

    missing = missing_devices(_distinct(name for name, _ in pairs))
    here = [(resolve_device(name), precision) for name, precision in pairs if name not in missing]
    return [line for device, precision in here for line in precision_faults(Precision(precision), device)]


def _fitting_faults(dataset: Any, parts: Sequence[Parts], request: PreflightRequest) -> list[str]:
    """Faults of a built-in dataset's parts: labels and loss, metrics, shapes, memory and micro-batches."""
    import torch

    from runmanager.training.criteria import build_loss
    from runmanager.training.datasets.registry import load_dataset
    from runmanager.training.models.builtin_models import build_model
    from runmanager.training.step.micro_batches import piece_faults

    data = load_dataset(dataset, data_root=request.data_root, seed=0)
    faults = []
    for each in parts:
        try:
            loss = build_loss(each.loss)
            num_outputs = loss.num_outputs(data)
            faults += _metric_faults(each.metrics, loss, num_outputs, data)
            if isinstance(each.model, Mapping):
                continue  # a custom model is built only by the run
            with torch.device("meta"):  # shapes only: no memory, no random numbers
                network = build_model(each.model, in_shape=data.in_shape, num_classes=num_outputs)
            faults += _size_faults(network)
            for model, of_loss, micro_batch, on_oom in request.pieces:
                if (model, of_loss) == (each.model, each.loss):
                    faults += piece_faults(network, loss, micro_batch=micro_batch, on_oom=on_oom)
        except RunManagerError as error:
            faults += str(error).splitlines()
        except (RuntimeError, TypeError) as error:  # too many values for PyTorch
            faults.append(
                fault("model", "have weights that fit the free memory", str(error).splitlines()[0], "make it smaller")
            )
    return faults


def _metric_faults(metrics: Mapping[str, Any], loss: Any, num_outputs: int, data: Any) -> list[str]:
    """Faults of metrics on a batch of the dataset's first labels, with predictions of a built-in model's shape."""
    import torch

    from runmanager.training.criteria import EvaluationMetrics, build_metrics

    if not metrics:
        return []
    labels = torch.stack([data.validation[0][1]] * 2)
    preds = torch.zeros(2, num_outputs)
    built = EvaluationMetrics(
        build_metrics(metrics, num_outputs=num_outputs, device=torch.device("cpu")), loss, metrics
    )
    return built.faults(loss(preds, labels)[1], labels)


def _size_faults(network: Any) -> list[str]:
    """Fault of a model whose weights exceed this host's memory, where they are created for any device."""
    needed = sum(each.numel() * each.element_size() for each in network.parameters())
    if needed <= (free := free_memory()):
        return []
    rule = f"have weights that fit the free memory, {format_gib(free)}"
    return [fault("model", rule, format_gib(needed), "make it smaller")]


def _model_faults(model: Any) -> list[str]:
    from runmanager.training.custom_targets import check_arguments, resolve_target
    from runmanager.training.models.builtin_models import MODEL_ARGUMENTS, architecture_faults

    try:
        if isinstance(model, TorchvisionModelOptions):
            return architecture_faults(model.architecture)
        if isinstance(model, Mapping):
            check_arguments(resolve_target(model, group="model"), model, MODEL_ARGUMENTS, group="model")
    except RunManagerError as error:
        return str(error).splitlines()
    return []
