"""Settings of the loss and of metrics, with the checks that need no torch."""

from collections.abc import Iterable, Mapping
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.run.measurement import METRICS
from runmanager.tracking.metric_definitions import check_name
from runmanager.validation import fault, suggestion

__all__ = [
    "DEFAULT_LOSS",
    "criteria_faults",
    "is_of_torch",
    "metric_column",
    "recorded_metrics",
    "unknown_metric_faults",
]

DEFAULT_LOSS = "torch.nn.CrossEntropyLoss"

_REGRESSION_LOSSES = frozenset(f"torch.nn.{name}" for name in ("MSELoss", "L1Loss", "HuberLoss", "SmoothL1Loss"))
_TARGET = "_target_"


def metric_column(name: str) -> str:
    """The name under which the setting `metrics.<name>` is recorded: it is computed in the evaluation."""
    return f"val_{name}"


def is_of_torch(loss: Any) -> bool:
    """Whether PyTorch defines the loss, so that it decides nothing in Python from one step to the next."""
    return isinstance(loss, Mapping) and str(loss.get(_TARGET, "")).startswith("torch.nn.")


def recorded_metrics(loss: Any, metrics: Iterable[str]) -> list[str]:
    """The metrics that an epoch records: losses, accuracies unless the loss is one of regression, and `metrics`."""
    has_accuracy = not (isinstance(loss, Mapping) and loss.get(_TARGET) in _REGRESSION_LOSSES)
    built_in = [name for name in METRICS if has_accuracy or not name.endswith("accuracy")]
    return [*built_in, *map(metric_column, metrics)]


def unknown_metric_faults(key: str, value: str | None, known: Iterable[str]) -> list[str]:
    """Check a setting that names a metric; None is allowed, and so is a part of a collection, `val_all/f1`."""
    names = list(known)
    if value is None or value in names or value.partition("/")[0] in set(names).difference(METRICS):
        return []
    return [fault(key, f"be one of {', '.join(names)}", value, suggestion(value, names))]


def criteria_faults(loss: Any, metrics: Any) -> list[str]:
    """Check that the loss and each metric have a target, and that each metric has a name that can be recorded."""
    faults = []
    if isinstance(loss, Mapping) and _TARGET not in loss:
        faults.append(fault("loss._target_", "be given", "nothing", "choose a loss, like `loss=mse`"))
    for name, settings in metrics.items():
        key = f"metrics.{name}"
        if not isinstance(settings, Mapping) or _TARGET not in settings:
            faults.append(
                fault(f"{key}._target_", "name a class", settings, f"as in {key}._target_=torchmetrics.F1Score")
            )
        elif metric_column(name) in METRICS:
            faults.append(fault(key, "have another name", "the name of what every run records"))
        else:
            faults += _name_faults(key, name)
    return faults


def _name_faults(key: str, name: str) -> list[str]:
    try:
        check_name(name)
    except UsageError as error:
        return [str(error)]
    return [fault(key, "have a name without a slash", name)] if "/" in name else []
