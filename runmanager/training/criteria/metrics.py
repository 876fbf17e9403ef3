"""Metrics of a run's evaluations: built from their settings, updated with each batch, recorded with the epoch."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from runmanager.errors import ConfigurationError, RunManagerError, UsageError
from runmanager.text import error_line
from runmanager.tracking.epoch_metrics.logged_metrics import as_number
from runmanager.tracking.metric_definitions import define_metric, larger_is_better
from runmanager.training.criteria.loss import Loss
from runmanager.training.custom_targets import call_target, check_arguments, parameter_names, resolve_target
from runmanager.training.options.dataset import metric_column
from runmanager.validation import fault

_ARGUMENTS = ("num_classes", "num_labels")
"""Arguments that a metric receives if it takes them: the number of the network's outputs."""

_METHODS = ("update", "compute", "reset")
_CHECKS = "validate_args"  # of torchmetrics: whether each update checks its values, for which the host waits
_SOME_OUTPUTS = 10


class Metric(Protocol):
    """What torchmetrics' metrics have, and what a user-defined one needs."""

    def update(self, preds: Tensor, labels: Tensor) -> None: ...

    def compute(self) -> Any: ...

    def reset(self) -> None: ...


def build_metrics(
    options: Mapping[str, Mapping[str, Any]], *, num_outputs: int, device: torch.device
) -> dict[str, Metric]:
    """Create the metrics on `device`, by name; targets receive `num_outputs` as `num_classes` or `num_labels`.

    Raises `ConfigurationError` with every fault: of targets that are not found, or do not make a metric.
    """
    metrics, faults = {}, []
    for name, settings in options.items():
        try:
            metrics[name] = _build(name, settings, num_outputs, device)
        except RunManagerError as error:
            faults += str(error).splitlines()
    if faults:
        raise ConfigurationError(faults)
    return metrics


def _build(name: str, settings: Mapping[str, Any], num_outputs: int, device: torch.device) -> Metric:
    group = f"metrics.{name}"
    target = resolve_target(settings, group=group)
    try:
        metric = call_target(target, settings, dict.fromkeys(_ARGUMENTS, num_outputs), group=group)
        metric = metric.to(device) if hasattr(metric, "to") else metric
    except RunManagerError:
        raise
    except Exception as error:  # a constructor may raise anything
        rule = f"have settings that {settings['_target_']} takes"
        raise ConfigurationError([fault(group, rule, error_line(error))]) from error
    missing = [each for each in _METHODS if not callable(getattr(metric, each, None))]
    if missing:
        rule, got = f"make a metric, with {', '.join(_METHODS)}", f"{type(metric).__name__} without {missing[0]}"
        raise ConfigurationError([fault(f"{group}._target_", rule, got)])
    built: Metric = metric
    return built


def metric_argument_faults(options: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Check the targets and their settings without the number of outputs, which only a run may know."""
    faults = []
    for name, settings in options.items():
        group = f"metrics.{name}"
        try:
            target = resolve_target(settings, group=group)
            check_arguments(target, settings, _ARGUMENTS, group=group)
            if not set(_ARGUMENTS) & set(parameter_names(target)) - set(settings):
                _build(name, settings, _SOME_OUTPUTS, torch.device("cpu"))
        except RunManagerError as error:
            faults += str(error).splitlines()
    return faults


def declare_directions(options: Mapping[str, Mapping[str, Any]]) -> None:
    """Declare which values are better for each metric that says so itself, by `higher_is_better`.

    Its direction is needed before the data is loaded, so the metric is built for some number of outputs. One that this
    number does not fit is left to the words of its name.
    """
    for name, settings in options.items():
        try:
            metric = _build(name, settings, _SOME_OUTPUTS, torch.device("cpu"))
        except RunManagerError:
            continue
        is_larger_better = getattr(metric, "higher_is_better", None)
        if isinstance(is_larger_better, bool):
            define_metric(metric_column(name), better="max" if is_larger_better else "min")


def direction_faults(options: Mapping[str, Mapping[str, Any]], monitored: Mapping[str, str | None]) -> list[str]:
    """Check that it is known which values are better, of the metrics that settings name: by setting, the metric."""
    declare_directions(options)
    faults = []
    for key, name in monitored.items():
        try:
            if name is not None:
                larger_is_better(name)
        except UsageError:
            way_out = "give its class `higher_is_better`, or it a name that says so, as kappa_score"
            faults.append(fault(key, "be a metric of known direction", name, way_out))
    return faults


class EvaluationMetrics:
    """The metrics of one run: they add up an evaluation's batches, and an epoch computes and resets them."""

    def __init__(self, metrics: Mapping[str, Metric], loss: Loss, options: Mapping[str, Mapping[str, Any]]) -> None:
        self._metrics = metrics
        self._loss = loss
        # After an evaluation all labels have been checked once, and further checks would only make the host wait.
        self._checked_once = [each for name, each in metrics.items() if _CHECKS not in options[name]]

    def update(self, preds: Tensor, labels: Tensor) -> None:
        """Add a batch. Raises `ConfigurationError` if a metric does not take such predictions and labels."""
        if not self._metrics:
            return
        preds, labels = self._loss.for_metrics(preds, labels)
        for name, metric in self._metrics.items():
            try:
                metric.update(preds, labels)
            except Exception as error:  # a user's metric may raise anything
                raise ConfigurationError([_misfit(name, preds, labels, error)]) from error

    def results(self) -> dict[str, Metric]:
        """The metrics by the name of their column, to be logged after the last batch of an evaluation."""
        for metric in self._checked_once:
            if getattr(metric, _CHECKS, False):
                setattr(metric, _CHECKS, False)
        return {metric_column(name): metric for name, metric in self._metrics.items()}

    def faults(self, preds: Tensor, labels: Tensor) -> list[str]:
        """Check that new metrics take such a batch and compute numbers: one line for each that does not."""
        faults = []
        for name, metric in self._metrics.items():
            try:
                metric.update(*self._loss.for_metrics(preds, labels))
                found = metric.compute()
                for each in found.values() if isinstance(found, Mapping) else [found]:
                    as_number(metric_column(name), each)
            except RunManagerError as error:
                faults.append(fault(f"metrics.{name}", "compute one number, or several by name", error_line(error)))
            except Exception as error:  # a user's metric may raise anything
                faults.append(_misfit(name, preds, labels, error))
            metric.reset()
        return faults


def _misfit(name: str, preds: Tensor, labels: Tensor, error: Exception) -> str:
    rule = f"take predictions {_text(preds)} and labels {_text(labels)}"
    return fault(f"metrics.{name}", rule, error_line(error))


def _text(tensor: Tensor) -> str:
    shape: Sequence[int] = tensor.shape
    return f"{tuple(shape)} of {tensor.dtype}"
