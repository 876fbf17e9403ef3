"""The settings of every model, optimiser, scheduler and loader, and which choices each group has."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from runmanager.training.options.choice import Options
from runmanager.training.options.dataset import (
    Cifar10Options,
    Cifar100Options,
    DigitsOptions,
    DiscOptions,
    FakeOptions,
    FashionMnistOptions,
    MnistOptions,
)
from runmanager.validation import at_least_faults, fault, range_faults

__all__ = [
    "OPTION_TYPES",
    "AdamOptions",
    "AdamWOptions",
    "CnnOptions",
    "ConstantOptions",
    "CosineOptions",
    "DataLoaderOptions",
    "LoaderOptions",
    "LogisticOptions",
    "MlpOptions",
    "MlpTowerOptions",
    "ModelOptions",
    "MultistepOptions",
    "OneCycleOptions",
    "OptimizerOptions",
    "ResidentOptions",
    "SchedulerOptions",
    "SgdOptions",
    "TorchvisionModelOptions",
]

_MOST_PREFETCHED = 1000  # batches a worker: they all lie in memory, and more hide nothing
MAX_TOWER_DEPTH = 16  # 2.8 thousand million parameters; each layer more has four times as many


@dataclass(frozen=True)
class ModelOptions(Options):
    """A model."""

    group: ClassVar[str] = "model"


@dataclass(frozen=True)
class CnnOptions(ModelOptions):
    """The tutorial's network: two convolutions, three linear layers."""

    name: str = "cnn"


@dataclass(frozen=True)
class MlpOptions(ModelOptions):
    """Linear layers with ReLU between them; `hidden` gives the widths."""

    name: str = "mlp"
    hidden: list[int] = field(default_factory=lambda: [32])

    def _bad_values(self) -> list[str]:
        if self.hidden and min(self.hidden) >= 1:
            return []
        way_out = "model=logistic has no hidden layer"
        return [fault("model.hidden", "hold at least one width, each at least 1", self.hidden, way_out)]


@dataclass(frozen=True)
class LogisticOptions(ModelOptions):
    """One linear layer."""

    name: str = "logistic"


@dataclass(frozen=True)
class MlpTowerOptions(ModelOptions):
    """`depth` linear layers whose widths double: 4, 8, 16, …"""

    name: str = "mlp_tower"
    depth: int = 8

    def _bad_values(self) -> list[str]:
        if 2 <= self.depth <= MAX_TOWER_DEPTH:
            return []
        return [fault("model.depth", f"be between 2 and {MAX_TOWER_DEPTH}", self.depth)]


@dataclass(frozen=True)
class TorchvisionModelOptions(ModelOptions):
    """A classifier of torchvision by name, untrained; `input_size` null picks the side it needs."""

    name: str = "torchvision"
    architecture: str = "resnet18"
    input_size: int | None = None

    def _bad_values(self) -> list[str]:
        return at_least_faults("model.input_size", self.input_size, 1)


@dataclass(frozen=True)
class OptimizerOptions(Options):
    """An optimiser."""

    group: ClassVar[str] = "optimizer"


@dataclass(frozen=True)
class SgdOptions(OptimizerOptions):
    """Stochastic gradient descent.

    `fused` takes all parameters in one kernel; null does not, as it gains little and takes no sparse gradients.
    """

    name: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    fused: bool | None = None

    def _bad_values(self) -> list[str]:
        faults = range_faults("optimizer.momentum", self.momentum, 0, 1)
        faults += range_faults("optimizer.weight_decay", self.weight_decay, 0, math.inf)
        if self.nesterov and self.momentum == 0:
            way_out = "set `optimizer.momentum`, or `optimizer.nesterov=false`"
            faults.append(fault("optimizer.momentum", "be above 0 for Nesterov's method", self.momentum, way_out))
        return faults


@dataclass(frozen=True)
class AdamOptions(OptimizerOptions):
    """Adam; `weight_decay` is added to the gradient.

    `fused` takes all parameters in one kernel; null does so on CPU and CUDA, where that is several times as fast.
    """

    name: str = "adam"
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    weight_decay: float = 0.0
    fused: bool | None = None

    def _bad_values(self) -> list[str]:
        faults = [] if len(self.betas) == 2 else [fault("optimizer.betas", "be two numbers", self.betas)]
        for beta in self.betas:
            faults += range_faults("optimizer.betas", beta, 0, 1)
        faults += range_faults("optimizer.eps", self.eps, 0, math.inf)
        return faults + range_faults("optimizer.weight_decay", self.weight_decay, 0, math.inf)


@dataclass(frozen=True)
class AdamWOptions(AdamOptions):
    """Adam with decoupled weight decay."""

    name: str = "adamw"
    weight_decay: float = 0.01


@dataclass(frozen=True)
class SchedulerOptions(Options):
    """A scheduler of the learning rate."""

    group: ClassVar[str] = "scheduler"


@dataclass(frozen=True)
class ConstantOptions(SchedulerOptions):
    """The learning rate stays as given."""

    name: str = "constant"


@dataclass(frozen=True)
class MultistepOptions(SchedulerOptions):
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
class CosineOptions(SchedulerOptions):
    """The learning rate falls to `min_lr` along half a cosine, a step an epoch."""

    name: str = "cosine"
    min_lr: float = 0.0

    def _bad_values(self) -> list[str]:
        return range_faults("scheduler.min_lr", self.min_lr, 0, math.inf)


@dataclass(frozen=True)
class OneCycleOptions(SchedulerOptions):
    """The learning rate rises from a 25th of `lr` to `lr` in `pct_start` of all steps, then falls to almost 0."""

    name: str = "onecycle"
    pct_start: float = 0.3

    def _bad_values(self) -> list[str]:
        return range_faults("scheduler.pct_start", self.pct_start, 0, 1)


@dataclass(frozen=True)
class LoaderOptions(Options):
    """A way of loading."""

    group: ClassVar[str] = "loader"


@dataclass(frozen=True)
class DataLoaderOptions(LoaderOptions):
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
        faults = at_least_faults("loader.prefetch_factor", self.prefetch_factor, 1)
        if self.prefetch_factor > _MOST_PREFETCHED:
            faults.append(fault("loader.prefetch_factor", f"be at most {_MOST_PREFETCHED}", self.prefetch_factor))
        if self.prefetch_to_device and self.pin_memory is False:
            way_out = "only from pinned memory a batch is sent while something else goes on"
            rule = "be true or null with `loader.prefetch_to_device=true`"
            faults.append(fault("loader.pin_memory", rule, "false", way_out))
        return faults


@dataclass(frozen=True)
class ResidentOptions(LoaderOptions):
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
