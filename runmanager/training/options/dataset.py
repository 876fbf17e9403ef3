"""The settings of every dataset, with the checks of their values."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from runmanager.training.options.choice import Options
from runmanager.validation import at_least_faults, fault, holdout_faults

__all__ = [
    "Cifar10Options",
    "Cifar100Options",
    "DatasetOptions",
    "DigitsOptions",
    "DiscOptions",
    "FakeOptions",
    "FashionMnistOptions",
    "MnistOptions",
    "VisionOptions",
    "added_samples",
]

_LABEL_BYTES = 8
_MOST_CLASSES = 2**31 - 1
_DIGITS_VAL_SIZE = 10_000


@dataclass(frozen=True)
class DatasetOptions(Options):
    """A dataset."""

    group: ClassVar[str] = "dataset"

    def least_bytes(self) -> int:
        """The memory that making and holding the samples takes at least; 0 where they are read from files."""
        return 0


def added_samples(holdout: int | float, size: int) -> int:
    """How many samples to make besides `size` training samples, so that `holdout` of all of them is held out."""
    return holdout if isinstance(holdout, int) else max(1, round(size * holdout / (1 - holdout)))


@dataclass(frozen=True)
class DigitsOptions(DatasetOptions):
    """Scikit-learn's 1,797 digits, enlarged to 28x28 and jittered to `size` training images.

    `val_size` null makes 10,000 validation images, or with a `holdout` as many as it says.
    """

    name: str = "digits"
    size: int = 60_000
    val_size: int | None = None
    holdout: int | float | None = None
    data_seed: int = 0

    def _bad_values(self) -> list[str]:
        faults = at_least_faults("dataset.size", self.size, 1) + at_least_faults("dataset.val_size", self.val_size, 1)
        if isinstance(self.holdout, int) and self.val_size not in (None, self.holdout):
            way_out = "leave one of the two at null"
            faults.append(fault("dataset.val_size", f"equal `dataset.holdout`={self.holdout}", self.val_size, way_out))
        return faults + holdout_faults(self.holdout) + at_least_faults("dataset.data_seed", self.data_seed, 0)

    @property
    def num_validation(self) -> int:
        """How many validation images are made."""
        if self.val_size is not None:
            return self.val_size
        return _DIGITS_VAL_SIZE if self.holdout is None else added_samples(self.holdout, self.size)

    def least_bytes(self) -> int:
        """An image of 28x28 bytes, its label and the number of its source."""
        return (self.size + self.num_validation) * (28 * 28 + 2 * _LABEL_BYTES)


@dataclass(frozen=True)
class DiscOptions(DatasetOptions):
    """Points in the unit square, told apart by a disc around the origin; `size` of them to train on."""

    name: str = "disc"
    size: int = 1000
    holdout: int | float | None = None

    def _bad_values(self) -> list[str]:
        # Two points, because one has no standard deviation to normalise by.
        return at_least_faults("dataset.size", self.size, 2) + holdout_faults(self.holdout)

    @property
    def num_validation(self) -> int:
        """How many validation points are made."""
        return self.size if self.holdout is None else added_samples(self.holdout, self.size)

    def least_bytes(self) -> int:
        """Two coordinates as drawn and two as normalised, in float32, and a label."""
        return (self.size + self.num_validation) * (4 * 4 + _LABEL_BYTES)


@dataclass(frozen=True)
class VisionOptions(DatasetOptions):
    """What the downloaded datasets share: `size` null trains on all there is."""

    name: str = "vision"
    size: int | None = None
    holdout: int | float | None = None

    def _bad_values(self) -> list[str]:
        return at_least_faults("dataset.size", self.size, 1) + holdout_faults(self.holdout)


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
    """Random images with random labels, of any shape and number: for measuring, not for learning."""

    name: str = "fake"
    size: int = 10_000
    val_size: int = 1000
    in_shape: list[int] = field(default_factory=lambda: [1, 28, 28])
    num_classes: int = 10
    data_seed: int = 0

    def _bad_values(self) -> list[str]:
        faults = at_least_faults("dataset.size", self.size, 1) + at_least_faults("dataset.val_size", self.val_size, 1)
        if not self.in_shape or min(self.in_shape) < 1:
            faults.append(fault("dataset.in_shape", "hold at least one length, each at least 1", self.in_shape))
        faults += at_least_faults("dataset.num_classes", self.num_classes, 1)
        if self.num_classes > _MOST_CLASSES:
            faults.append(fault("dataset.num_classes", f"be at most {_MOST_CLASSES}", self.num_classes))
        return faults + at_least_faults("dataset.data_seed", self.data_seed, 0)

    def least_bytes(self) -> int:
        """A byte a value, and a label."""
        return (self.size + self.val_size) * (math.prod(self.in_shape) + _LABEL_BYTES)
