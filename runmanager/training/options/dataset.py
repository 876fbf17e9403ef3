"""Settings of the datasets and of the loss and metrics, with the checks of their values."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from runmanager.errors import UsageError
from runmanager.records.run.measurement import METRICS
from runmanager.tracking.options import check_name
from runmanager.validation import MAX_COUNT, GroupOptions, allowed, derived, fault, limits, suggestion

_LABEL_BYTES = 8
_ALL_VALIDATION = 10_000  # of digits, MNIST, FashionMNIST, CIFAR10 and CIFAR100
_HOLDOUT = allowed("null, a fraction between 0 and 1, a count of at least 1")


@dataclass(frozen=True)
class DatasetOptions(GroupOptions):
    """Settings of a dataset."""

    group: ClassVar[str] = "dataset"

    def min_bytes(self) -> int:
        """A lower bound of the memory for the generated samples in bytes; 0 if they are read from files."""
        return 0


def default_val_size(size: int | None, holdout: int | float | None, all_samples: int) -> int | None:
    """The validation images next to `size` of `all_samples` training images, if a command names no number.

    They are in the same share of 10,000; None, which is all of them, for all training images and with a `holdout`.
    The configuration files of datasets call it as the resolver `runmanager.val_size`.
    """
    if holdout is not None or size is None or size >= all_samples:
        return None
    return max(1, round(size / all_samples * _ALL_VALIDATION))


def fake_val_size(size: int) -> int:
    """The validation samples next to `size` random training samples, if a command names no number: a tenth.

    The configuration file of the dataset calls it as the resolver `runmanager.fake_val_size`.
    """
    return max(1, (size + 5) // 10)


def num_extra_samples(holdout: int | float, size: int) -> int:
    """The number of validation samples next to `size` training samples: `holdout`, or that share of all samples."""
    return holdout if isinstance(holdout, int) else max(1, round(size * holdout / (1 - holdout)))


def holdout_faults(value: int | float | None) -> list[str]:
    """Check `dataset.holdout`: null, a fraction or a count."""
    if value is None or (isinstance(value, float) and 0 < value < 1):
        return []
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return []
    rule = "be a fraction between 0 and 1 or a whole count of at least 1"
    return [fault("dataset.holdout", rule, value, "null takes the official test split")]


@dataclass(frozen=True)
class DigitsOptions(DatasetOptions):
    """Scikit-learn's 1,797 digits, enlarged to 28x28 and jittered to make `size` training images."""

    name: str = "digits"
    size: int = field(default=60_000, metadata=limits(ge=1))
    """Training images."""
    val_size: int | None = field(default=None, metadata=limits(ge=1) | derived("size / 6, at most 10000"))
    """Validation images. Not given, as many in proportion to `size` as 10,000 are to 60,000; null is 10,000, or what
    `dataset.holdout` says."""
    holdout: int | float | None = field(default=None, metadata=_HOLDOUT)
    """Validation images, as a count or as a fraction of all; null leaves the number to `dataset.val_size`."""
    data_seed: int = field(default=0, metadata=limits(ge=0))
    """Seed of the split and of the jitter."""

    def _special_faults(self) -> list[str]:
        faults = holdout_faults(self.holdout)
        if isinstance(self.holdout, int) and self.val_size not in (None, self.holdout):
            way_out = "leave one of the two at null"
            faults.append(fault("dataset.val_size", f"equal `dataset.holdout`={self.holdout}", self.val_size, way_out))
        return faults

    @property
    def num_validation(self) -> int:
        """The number of validation images."""
        if self.val_size is not None:
            return self.val_size
        return _ALL_VALIDATION if self.holdout is None else num_extra_samples(self.holdout, self.size)

    def min_bytes(self) -> int:
        """28x28 bytes for each image, its label and the index of its source digit."""
        return (self.size + self.num_validation) * (28 * 28 + 2 * _LABEL_BYTES)


@dataclass(frozen=True)
class DiscOptions(DatasetOptions):
    """Points in the unit square, labelled by whether they are in a disc around the origin."""

    name: str = "disc"
    # Two points, because the standard deviation of one is not defined.
    size: int = field(default=1000, metadata=limits(ge=2))
    """Training points."""
    holdout: int | float | None = field(default=None, metadata=_HOLDOUT)
    """Validation points, as a count or as a fraction of all; null makes as many as training points."""

    def _special_faults(self) -> list[str]:
        return holdout_faults(self.holdout)

    @property
    def num_validation(self) -> int:
        """The number of validation points."""
        return self.size if self.holdout is None else num_extra_samples(self.holdout, self.size)

    def min_bytes(self) -> int:
        """Two drawn and two normalised coordinates in float32 for each point, and a label."""
        return (self.size + self.num_validation) * (4 * 4 + _LABEL_BYTES)


@dataclass(frozen=True)
class VisionOptions(DatasetOptions):
    """Settings that the downloaded datasets share."""

    name: str = "vision"
    size: int | None = field(default=None, metadata=limits(ge=1))
    """Training images to use; null uses all."""
    val_size: int | None = field(default=None, metadata=limits(ge=1) | derived("the share of size"))
    """Images of the test split to validate on; null uses all. Not given, it is the share of them that `size` is of all
    training images."""
    holdout: int | float | None = field(default=None, metadata=_HOLDOUT)
    """Validation images taken from the training images, as a count or a fraction; null takes the test split."""

    def _special_faults(self) -> list[str]:
        faults = holdout_faults(self.holdout)
        if self.holdout is not None and self.val_size is not None:
            way_out = "the images that it holds out are the validation"
            faults.append(fault("dataset.val_size", "be left out with `dataset.holdout`", self.val_size, way_out))
        return faults


@dataclass(frozen=True)
class MnistOptions(VisionOptions):
    """60,000 and 10,000 handwritten digits, 28x28, one channel."""

    name: str = "mnist"


@dataclass(frozen=True)
class FashionMnistOptions(VisionOptions):
    """60,000 and 10,000 pieces of clothing, 28x28, one channel."""

    name: str = "fashion_mnist"


@dataclass(frozen=True)
class Cifar10Options(VisionOptions):
    """50,000 and 10,000 photographs of 10 classes, 32x32, three channels."""

    name: str = "cifar10"


@dataclass(frozen=True)
class Cifar100Options(VisionOptions):
    """50,000 and 10,000 photographs of 100 classes, 32x32, three channels."""

    name: str = "cifar100"


@dataclass(frozen=True)
class FakeOptions(DatasetOptions):
    """Random images with random labels, of any shape and number: for timing, not for learning."""

    name: str = "fake"
    size: int = field(default=10_000, metadata=limits(ge=1))
    """Training samples."""
    val_size: int = field(default=1000, metadata=limits(ge=1) | derived("size / 10"))
    """Validation samples. Not given, a tenth of `size`."""
    in_shape: list[int] = field(default_factory=lambda: [1, 28, 28], metadata=allowed("each at least 1"))
    """Shape of a sample."""
    num_classes: int = field(default=10, metadata=limits(ge=1, le=MAX_COUNT))
    """Number of classes."""
    data_seed: int = field(default=0, metadata=limits(ge=0))
    """Seed of the samples."""

    def _special_faults(self) -> list[str]:
        if self.in_shape and min(self.in_shape) >= 1:
            return []
        return [fault("dataset.in_shape", "hold at least one length, each at least 1", self.in_shape)]

    def min_bytes(self) -> int:
        """One byte for each value, and a label."""
        return (self.size + self.val_size) * (math.prod(self.in_shape) + _LABEL_BYTES)


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
