"""The loss of a batch: built from its settings, with what it says about outputs, accuracy and pieces of a batch.

| kind | losses | outputs of the network | labels | accuracy |
| --- | --- | --- | --- | --- |
| `CLASSES` | CrossEntropyLoss | scores (batch, classes, …) | class numbers (batch, …) | of the largest score |
| `YES_NO` | BCEWithLogitsLoss | logits of the labels' shape | 0 to 1, (batch, …) | of each logit above 0 |
| `VALUES` | MSELoss, L1Loss, HuberLoss, SmoothL1Loss | of the labels' shape | numbers (batch, …) | none |
| `OWN` | any other | whatever it takes | whatever it takes | if the shapes are those of `CLASSES` |
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runmanager.errors import ConfigurationError, DatasetError, RunManagerError, TensorMismatchError, UsageError
from runmanager.text import error_line
from runmanager.tracking.epoch_metrics.logged_metrics import as_number
from runmanager.tracking.epoch_metrics.loss_buffer import sum_type
from runmanager.tracking.epoch_metrics.prediction_task import IGNORED
from runmanager.tracking.options import define_metric, larger_is_better
from runmanager.training.custom_targets import call_target, check_arguments, parameter_names, resolve_target
from runmanager.training.datasets.array_dataset import ArrayDataset
from runmanager.training.datasets.registry import Data
from runmanager.training.options.dataset import metric_column
from runmanager.validation import fault

_TENSOR_SETTINGS = ("weight", "pos_weight")  # PyTorch's losses take them as tensors


class Kind(Enum):
    """What a loss compares."""

    CLASSES = "class scores with class numbers"
    YES_NO = "logits with 0 and 1"
    VALUES = "numbers with numbers"
    OWN = "anything"


_KINDS: dict[type, Kind] = {
    nn.CrossEntropyLoss: Kind.CLASSES,
    nn.BCEWithLogitsLoss: Kind.YES_NO,
    nn.MSELoss: Kind.VALUES,
    nn.L1Loss: Kind.VALUES,
    nn.HuberLoss: Kind.VALUES,
    nn.SmoothL1Loss: Kind.VALUES,
}


def build_loss(options: Mapping[str, Any]) -> "Loss":
    """Create the loss that `options` names by `_target_`, on the CPU.

    Numbers and lists of numbers as `weight` or `pos_weight` become tensors. Raises `ConfigurationError` if the target
    is not found or does not take its settings, or if what it makes is not a mean loss of predictions and labels.
    """
    target = resolve_target(options, group="loss")
    settings = {key: _as_argument(key, value) for key, value in options.items()}
    try:
        function = call_target(target, settings, {}, group="loss")
        return Loss(function)
    except RunManagerError:
        raise
    except Exception as error:  # a constructor may raise anything
        rule = f"have settings that {options['_target_']} takes"
        raise ConfigurationError([fault("loss", rule, error_line(error))]) from error


def _as_argument(key: str, value: Any) -> Any:
    if key not in _TENSOR_SETTINGS or isinstance(value, str) or not isinstance(value, int | float | Sequence):
        return value
    return torch.tensor(value, dtype=torch.float32)


class Loss:
    """A mean loss over a batch. `function` takes predictions and labels, both (batch, …), and returns a scalar.

    Raises `ConfigurationError` for what cannot be called so, for another reduction than the mean, and for weights that
    would have to be trained.
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        self.function = nn.CrossEntropyLoss() if function is None else function
        _check(self.function)
        self.kind = next((kind for base, kind in _KINDS.items() if isinstance(self.function, base)), Kind.OWN)
        self.ignored = int(getattr(self.function, "ignore_index", IGNORED))

    @property
    def splits(self) -> bool:
        """Whether the loss of a batch is the weighted mean of those of its pieces, as with all known losses."""
        return type(self.function) in _KINDS

    def to(self, device: torch.device) -> "Loss":
        """Move the weights of classes, if there are any, to `device`; return the loss itself."""
        if isinstance(self.function, nn.Module):
            self.function.to(device)
        return self

    def __call__(self, preds: Tensor, labels: Tensor, *, is_piece: bool = False) -> tuple[Tensor, Tensor]:
        """Return the mean loss, a scalar, and the predictions, in the labels' shape if each belongs to one label.

        The mean over a piece of a batch is 0 if none of its labels counts. Raises `TensorMismatchError` if predictions
        and labels do not fit, or the loss is not one number.
        """
        if self.kind in (Kind.YES_NO, Kind.VALUES) or labels.is_floating_point():
            preds, labels = self._aligned(preds, labels)
        loss = self._of_piece(preds, labels) if is_piece else self.function(preds, labels)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise TensorMismatchError(f"`loss` must give one number a batch, got {got}; let it take the mean.")
        return loss.reshape(()), preds

    def _of_piece(self, preds: Tensor, labels: Tensor) -> Tensor:
        if (count := self.num_counted(labels)) is None:
            return self.function(preds, labels)
        total = F.cross_entropy(
            preds,
            labels,
            weight=getattr(self.function, "weight", None),
            ignore_index=self.ignored,
            reduction="sum",
            label_smoothing=getattr(self.function, "label_smoothing", 0.0),
        )
        return total / (count + (count == 0))

    def _aligned(self, preds: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Give both one shape and type, because shapes like (batch, 1) and (batch,) would be broadcast."""
        if preds.shape != labels.shape and _squeezed(preds) == _squeezed(labels):
            preds = preds.reshape(labels.shape)
        if preds.shape != labels.shape and self.kind in (Kind.YES_NO, Kind.VALUES):
            raise TensorMismatchError(
                f"Predictions must have the shape of their labels with {type(self.function).__name__}, got "
                f"{tuple(preds.shape)} and {tuple(labels.shape)}; give the network one output for each label."
            )
        preds = _in_full_precision(preds)
        return preds, labels.to(preds.dtype)

    def num_counted(self, labels: Tensor) -> Tensor | None:
        """The weight of these labels in the mean, a scalar on their device; None if all samples have the same."""
        if self.kind is not Kind.CLASSES or labels.is_floating_point():
            return None
        weight = getattr(self.function, "weight", None)
        counts = labels != self.ignored
        return (
            counts.sum(dtype=sum_type(labels.device))
            if weight is None
            else (weight[labels.where(counts, 0)] * counts).sum()
        )

    def num_outputs(self, data: Data) -> int:
        """The number of outputs a sample that a network needs: the classes, or the values of a label.

        Of labels that are images, (channels, height, width) or (height, width), only the channels count.
        Raises `ConfigurationError` for numbers of more than two classes where the loss needs 0 and 1, `DatasetError`
        for other labels outside of these.
        """
        if self.kind is Kind.YES_NO and data.num_classes > 2:
            way_out = "use `loss=cross_entropy`, or a dataset with such labels"
            got = f"class numbers of {data.num_classes} classes"
            raise ConfigurationError([fault("loss", "fit the labels, which it needs to be 0 or 1", got, way_out)])
        if self.kind is Kind.YES_NO:
            _check_range(data)
        has_answers = self.kind is Kind.OWN and len(data.label_shape) == 1  # several of yes or no, not a class
        if data.num_classes and self.kind in (Kind.CLASSES, Kind.OWN) and not has_answers:
            return data.num_classes
        return data.label_shape[0] if len(data.label_shape) in (1, 3) else 1

    def tracked(self, preds: Tensor, labels: Tensor) -> dict[str, Any]:
        """The arguments with which `track` records a batch: with its accuracy, or as a number of samples."""
        known: dict[str, Any] = {"preds": preds, "labels": labels}
        if self.kind is Kind.YES_NO:
            return {**known, "task": "binary" if labels.ndim == 1 else "multilabel"}
        if self.kind is not Kind.VALUES and _are_class_scores(preds, labels):
            return {**known, "task": "multiclass", "class_dim": 1, "ignore_index": self.ignored}
        return {"samples": len(labels)}

    def for_metrics(self, preds: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """What metrics get: the predictions as the loss does, but probabilities and whole labels for yes or no."""
        preds = _in_full_precision(preds)
        if self.kind is Kind.YES_NO:
            # Not logits: metrics would take those of a batch that happens to lie in [0, 1] for probabilities.
            return preds.sigmoid(), (labels > 0.5).to(torch.int64)
        are_numbers = self.kind is Kind.VALUES or labels.is_floating_point()
        return preds, labels.to(preds.dtype) if are_numbers else labels


def _check(function: object) -> None:
    key, name = "loss._target_", type(function).__name__
    if not callable(function):
        raise ConfigurationError([fault(key, "make a loss, which is called with predictions and labels", f"a {name}")])
    if (reduction := getattr(function, "reduction", "mean")) != "mean":
        way_out = "an epoch's loss is a mean over samples"
        raise ConfigurationError([fault("loss.reduction", "be mean", reduction, way_out)])
    if isinstance(function, nn.Module) and (count := len(list(function.parameters()))):
        got = f"{name} with {count} of them"
        raise ConfigurationError([fault(key, "make a loss without weights, which no optimiser would train", got)])
    try:
        inspect.signature(function.forward if isinstance(function, nn.Module) else function).bind(None, None)
    except TypeError as error:
        got = f"{name}: {error}"
        raise ConfigurationError([fault(key, "make a loss of predictions and labels", got)]) from error
    except ValueError:  # some callables written in C have no signature
        pass


def _check_range(data: Data) -> None:
    """Check labels in memory; others are read only by the training."""
    for part in (data.train, data.validation):
        if isinstance(part, ArrayDataset):
            low, high = (each.item() for each in part.tensors()[1].aminmax())
            if low < 0 or high > 1:
                raise DatasetError(f"The labels must be 0 or 1 with this loss, or between, got {low:g} to {high:g}.")


def _are_class_scores(preds: Tensor, labels: Tensor) -> bool:
    is_one_dimension_more = preds.ndim == labels.ndim + 1 and preds.ndim >= 2
    return (
        is_one_dimension_more
        and not labels.is_floating_point()
        and preds.shape[1] >= 2
        and (preds.shape[0], *preds.shape[2:]) == tuple(labels.shape)
    )


def _squeezed(tensor: Tensor) -> list[int]:
    """The shape without dimensions of size 1, except that of the batch."""
    return [*tensor.shape[:1], *(size for size in tensor.shape[1:] if size != 1)]


def _in_full_precision(preds: Tensor) -> Tensor:
    return preds.float() if preds.dtype in (torch.bfloat16, torch.float16) else preds


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
