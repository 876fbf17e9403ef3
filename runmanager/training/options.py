"""The settings of every dataset, model, optimiser, scheduler and loader, with the checks of their values."""

import math
from dataclasses import dataclass, field, fields

from runmanager.training.faults import bad_holdout, below, fault, outside

__all__ = [
    "OPTION_TYPES",
    "AdamOptions",
    "AdamWOptions",
    "Cifar10Options",
    "Cifar100Options",
    "CnnOptions",
    "ConstantOptions",
    "CosineOptions",
    "DataLoaderOptions",
    "DigitsOptions",
    "DiscOptions",
    "FakeOptions",
    "FashionMnistOptions",
    "LogisticOptions",
    "MlpOptions",
    "MlpTowerOptions",
    "MnistOptions",
    "MultistepOptions",
    "OneCycleOptions",
    "Options",
    "ResidentOptions",
    "SgdOptions",
    "TorchvisionModelOptions",
    "VisionOptions",
]

MAX_TOWER_DEPTH = 16  # 2.8 thousand million parameters; each layer more has four times as many


@dataclass(frozen=True)
class Options:
    """One choice of a group: its settings, and what is wrong with their values."""

    def faults(self) -> list[str]:
        """Every fault of these values, as readable lines; an empty list where there is none."""
        return self._renamed() + self._bad_values()

    def _bad_values(self) -> list[str]:
        return []

    def _renamed(self) -> list[str]:
        default = next(each.default for each in fields(self) if each.name == "name")
        name = getattr(self, "name", default)
        if name == default:
            return []
        group = next(group for group, choices in OPTION_TYPES.items() if type(self) in choices.values())
        return [fault(f"{group}.name", f"stay {default!r}", repr(name), f"choose another one with `{group}={name}`")]


@dataclass(frozen=True)
class DigitsOptions(Options):
    """Scikit-learn's 1,797 digits, enlarged to 28x28 and jittered to `size` training images.

    `val_size` null makes 10,000 validation images, or with a `holdout` as many as it says.
    """

    name: str = "digits"
    size: int = 60_000
    val_size: int | None = None
    holdout: int | float | None = None
    data_seed: int = 0

    def _bad_values(self) -> list[str]:
        faults = below("dataset.size", self.size, 1) + below("dataset.val_size", self.val_size, 1)
        if isinstance(self.holdout, int) and self.val_size not in (None, self.holdout):
            way_out = "leave one of the two at null"
            faults.append(fault("dataset.val_size", f"equal `dataset.holdout`={self.holdout}", self.val_size, way_out))
        return faults + bad_holdout(self.holdout) + below("dataset.data_seed", self.data_seed, 0)


@dataclass(frozen=True)
class DiscOptions(Options):
    """Points in the unit square, told apart by a disc around the origin; `size` of them to train on."""

    name: str = "disc"
    size: int = 1000
    holdout: int | float | None = None

    def _bad_values(self) -> list[str]:
        # Two points, because one has no standard deviation to normalise by.
        return below("dataset.size", self.size, 2) + bad_holdout(self.holdout)


@dataclass(frozen=True)
class VisionOptions(Options):
    """What the downloaded datasets share: `size` null trains on all there is."""

    name: str = "vision"
    size: int | None = None
    holdout: int | float | None = None

    def _bad_values(self) -> list[str]:
        return below("dataset.size", self.size, 1) + bad_holdout(self.holdout)


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
class FakeOptions(Options):
    """Random images with random labels, of any shape and number: for measuring, not for learning."""

    name: str = "fake"
    size: int = 10_000
    val_size: int = 1000
    in_shape: list[int] = field(default_factory=lambda: [1, 28, 28])
    num_classes: int = 10
    data_seed: int = 0

    def _bad_values(self) -> list[str]:
        faults = below("dataset.size", self.size, 1) + below("dataset.val_size", self.val_size, 1)
        if not self.in_shape or min(self.in_shape) < 1:
            faults.append(fault("dataset.in_shape", "hold at least one length, each at least 1", self.in_shape))
        faults += below("dataset.num_classes", self.num_classes, 1)
        return faults + below("dataset.data_seed", self.data_seed, 0)


@dataclass(frozen=True)
class CnnOptions(Options):
    """The tutorial's network: two convolutions, three linear layers."""

    name: str = "cnn"


@dataclass(frozen=True)
class MlpOptions(Options):
    """Linear layers with ReLU between them; `hidden` gives the widths."""

    name: str = "mlp"
    hidden: list[int] = field(default_factory=lambda: [32])

    def _bad_values(self) -> list[str]:
        if self.hidden and min(self.hidden) >= 1:
            return []
        way_out = "model=logistic has no hidden layer"
        return [fault("model.hidden", "hold at least one width, each at least 1", self.hidden, way_out)]


@dataclass(frozen=True)
class LogisticOptions(Options):
    """One linear layer."""

    name: str = "logistic"


@dataclass(frozen=True)
class MlpTowerOptions(Options):
    """`depth` linear layers whose widths double: 4, 8, 16, …"""

    name: str = "mlp_tower"
    depth: int = 8

    def _bad_values(self) -> list[str]:
        if 2 <= self.depth <= MAX_TOWER_DEPTH:
            return []
        return [fault("model.depth", f"be between 2 and {MAX_TOWER_DEPTH}", self.depth)]


@dataclass(frozen=True)
class TorchvisionModelOptions(Options):
    """A classifier of torchvision by name, untrained; `input_size` null picks the side it needs."""

    name: str = "torchvision"
    architecture: str = "resnet18"
    input_size: int | None = None

    def _bad_values(self) -> list[str]:
        return below("model.input_size", self.input_size, 1)


@dataclass(frozen=True)
class SgdOptions(Options):
    """Stochastic gradient descent.

    `fused` takes all parameters in one kernel; null does not, as it gains little and takes no sparse gradients.
    """

    name: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    fused: bool | None = None

    def _bad_values(self) -> list[str]:
        faults = outside("optimizer.momentum", self.momentum, 0, 1)
        faults += outside("optimizer.weight_decay", self.weight_decay, 0, math.inf)
        if self.nesterov and self.momentum == 0:
            way_out = "set `optimizer.momentum`, or `optimizer.nesterov=false`"
            faults.append(fault("optimizer.momentum", "be above 0 for Nesterov's method", self.momentum, way_out))
        return faults


@dataclass(frozen=True)
class AdamOptions(Options):
    """Adam; `weight_decay` is added to the gradient.

    `fused` takes all parameters in one kernel; null does so on CPU and CUDA, where that is several times faster.
    """

    name: str = "adam"
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    weight_decay: float = 0.0
    fused: bool | None = None

    def _bad_values(self) -> list[str]:
        faults = [] if len(self.betas) == 2 else [fault("optimizer.betas", "be two numbers", self.betas)]
        for beta in self.betas:
            faults += outside("optimizer.betas", beta, 0, 1)
        faults += outside("optimizer.eps", self.eps, 0, math.inf)
        return faults + outside("optimizer.weight_decay", self.weight_decay, 0, math.inf)


@dataclass(frozen=True)
class AdamWOptions(AdamOptions):
    """Adam with decoupled weight decay."""

    name: str = "adamw"
    weight_decay: float = 0.01


@dataclass(frozen=True)
class ConstantOptions(Options):
    """The learning rate stays as given."""

    name: str = "constant"


@dataclass(frozen=True)
class MultistepOptions(Options):
    """The learning rate is multiplied by `gamma` after each of the `milestones`, counted in finished epochs."""

    name: str = "multistep"
    milestones: list[int] = field(default_factory=list)
    gamma: float = 0.1

    def _bad_values(self) -> list[str]:
        faults = []
        rising = all(early < late for early, late in zip(self.milestones, self.milestones[1:], strict=False))
        if not self.milestones or self.milestones[0] < 1 or not rising:
            way_out = "`scheduler.milestones=[5]` lowers the rate after epoch 5"
            faults.append(fault("scheduler.milestones", "be rising epochs from 1 on", self.milestones, way_out))
        if not 0 < self.gamma < math.inf:
            faults.append(fault("scheduler.gamma", "be above 0 and finite", self.gamma))
        return faults


@dataclass(frozen=True)
class CosineOptions(Options):
    """The learning rate falls to `min_lr` along half a cosine, a step an epoch."""

    name: str = "cosine"
    min_lr: float = 0.0

    def _bad_values(self) -> list[str]:
        return outside("scheduler.min_lr", self.min_lr, 0, math.inf)


@dataclass(frozen=True)
class OneCycleOptions(Options):
    """The learning rate rises from a 25th of `lr` to `lr` in `pct_start` of all steps, then falls to almost 0."""

    name: str = "onecycle"
    pct_start: float = 0.3

    def _bad_values(self) -> list[str]:
        return outside("scheduler.pct_start", self.pct_start, 0, 1)


@dataclass(frozen=True)
class DataLoaderOptions(Options):
    """PyTorch's DataLoader.

    `pin_memory` null pins where the device gains by it; `prefetch_factor` is the batches that each worker holds ready.
    `prefetch_to_device` sends each batch while the device computes the step before.
    """

    name: str = "dataloader"
    shuffle: bool = True
    pin_memory: bool | None = None
    persistent_workers: bool = True
    prefetch_factor: int = 2
    prefetch_to_device: bool = False

    def _bad_values(self) -> list[str]:
        faults = below("loader.prefetch_factor", self.prefetch_factor, 1)
        if self.prefetch_to_device and self.pin_memory is False:
            way_out = "only from pinned memory a batch is sent while something else goes on"
            rule = "be true or null with `loader.prefetch_to_device=true`"
            faults.append(fault("loader.pin_memory", rule, "false", way_out))
        return faults


@dataclass(frozen=True)
class ResidentOptions(Options):
    """The whole set lies on the training device."""

    name: str = "resident"
    shuffle: bool = True


OPTION_TYPES: dict[str, dict[str, type[Options]]] = {
    "dataset": {
        "digits": DigitsOptions,
        "disc": DiscOptions,
        "mnist": MnistOptions,
        "fashion_mnist": FashionMnistOptions,
        "cifar10": Cifar10Options,
        "cifar100": Cifar100Options,
        "fake": FakeOptions,
    },
    "model": {
        "cnn": CnnOptions,
        "mlp": MlpOptions,
        "logistic": LogisticOptions,
        "mlp_tower": MlpTowerOptions,
        "torchvision": TorchvisionModelOptions,
    },
    "optimizer": {"sgd": SgdOptions, "adam": AdamOptions, "adamw": AdamWOptions},
    "scheduler": {
        "constant": ConstantOptions,
        "multistep": MultistepOptions,
        "cosine": CosineOptions,
        "onecycle": OneCycleOptions,
    },
    "loader": {"dataloader": DataLoaderOptions, "resident": ResidentOptions},
}
