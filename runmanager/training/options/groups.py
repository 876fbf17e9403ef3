"""Settings of the models, optimisers, schedulers, loaders and kinds of measurement, and the choices of each group."""

from dataclasses import dataclass, field
from typing import ClassVar

from runmanager.training.options.dataset import (
    Cifar10Options,
    Cifar100Options,
    DigitsOptions,
    DiscOptions,
    FakeOptions,
    FashionMnistOptions,
    MnistOptions,
)
from runmanager.validation import GroupOptions, fault, limits, range_faults

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
    "MeasureOptions",
    "MlpOptions",
    "MlpTowerOptions",
    "ModelOptions",
    "MultistepOptions",
    "OneCycleOptions",
    "OptimizerOptions",
    "PairedOptions",
    "ResidentOptions",
    "SchedulerOptions",
    "SgdOptions",
    "TorchvisionModelOptions",
]

_MAX_PREFETCH = 1000  # batches per worker: all are held in memory, and more do not hide any further latency
MAX_TOWER_DEPTH = 16  # 2.8 billion parameters; each further layer quadruples them


@dataclass(frozen=True)
class ModelOptions(GroupOptions):
    """Settings of a model."""

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

    def _special_faults(self) -> list[str]:
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
    depth: int = field(default=8, metadata=limits(ge=2, le=MAX_TOWER_DEPTH))


@dataclass(frozen=True)
class TorchvisionModelOptions(ModelOptions):
    """An untrained torchvision classifier by name; `input_size` null chooses the side length that it needs."""

    name: str = "torchvision"
    architecture: str = "resnet18"
    input_size: int | None = field(default=None, metadata=limits(ge=1))


@dataclass(frozen=True)
class OptimizerOptions(GroupOptions):
    """Settings of an optimiser."""

    group: ClassVar[str] = "optimizer"


@dataclass(frozen=True)
class SgdOptions(OptimizerOptions):
    """Stochastic gradient descent.

    `fused` updates all parameters in one kernel; null means false, because the gain is small and sparse gradients are
    not supported.
    """

    name: str = "sgd"
    momentum: float = field(default=0.0, metadata=limits(ge=0, lt=1))
    weight_decay: float = field(default=0.0, metadata=limits(ge=0))
    nesterov: bool = False
    fused: bool | None = None

    def _special_faults(self) -> list[str]:
        if not self.nesterov or self.momentum != 0:
            return []
        way_out = "set `optimizer.momentum`, or `optimizer.nesterov=false`"
        return [fault("optimizer.momentum", "be above 0 for Nesterov's method", self.momentum, way_out)]


@dataclass(frozen=True)
class AdamOptions(OptimizerOptions):
    """Adam; `weight_decay` is added to the gradient.

    `fused` updates all parameters in one kernel; null means true on CPU and CUDA, where it is several times as fast.
    """

    name: str = "adam"
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = field(default=1e-8, metadata=limits(ge=0))
    weight_decay: float = field(default=0.0, metadata=limits(ge=0))
    fused: bool | None = None

    def _special_faults(self) -> list[str]:
        faults = [] if len(self.betas) == 2 else [fault("optimizer.betas", "be two numbers", self.betas)]
        for beta in self.betas:
            faults += range_faults("optimizer.betas", beta, ge=0, lt=1)
        return faults


@dataclass(frozen=True)
class AdamWOptions(AdamOptions):
    """Adam with decoupled weight decay."""

    name: str = "adamw"
    weight_decay: float = field(default=0.01, metadata=limits(ge=0))


@dataclass(frozen=True)
class SchedulerOptions(GroupOptions):
    """Settings of a learning-rate schedule.

    `is_open_ended`: the learning rate of an epoch does not depend on how many epochs follow.
    """

    group: ClassVar[str] = "scheduler"
    is_open_ended: ClassVar[bool] = False


@dataclass(frozen=True)
class ConstantOptions(SchedulerOptions):
    """A constant learning rate."""

    is_open_ended: ClassVar[bool] = True
    name: str = "constant"


@dataclass(frozen=True)
class MultistepOptions(SchedulerOptions):
    """The learning rate is multiplied by `gamma` after each of the `milestones`, in finished epochs."""

    is_open_ended: ClassVar[bool] = True
    name: str = "multistep"
    milestones: list[int] = field(default_factory=list)
    gamma: float = field(default=0.1, metadata=limits(gt=0))

    def _special_faults(self) -> list[str]:
        is_rising = all(early < late for early, late in zip(self.milestones, self.milestones[1:], strict=False))
        if self.milestones and self.milestones[0] >= 1 and is_rising:
            return []
        way_out = "`scheduler.milestones=[5]` lowers the rate after epoch 5"
        return [fault("scheduler.milestones", "be rising epochs from 1 on", self.milestones, way_out)]


@dataclass(frozen=True)
class CosineOptions(SchedulerOptions):
    """The learning rate falls to `min_lr` along half a cosine, one step an epoch."""

    name: str = "cosine"
    min_lr: float = field(default=0.0, metadata=limits(ge=0))


@dataclass(frozen=True)
class OneCycleOptions(SchedulerOptions):
    """The learning rate rises from a 25th of `lr` to `lr` in `pct_start` of all steps, then falls to almost 0."""

    name: str = "onecycle"
    pct_start: float = field(default=0.3, metadata=limits(ge=0, lt=1))


@dataclass(frozen=True)
class LoaderOptions(GroupOptions):
    """Settings of a loader."""

    group: ClassVar[str] = "loader"


@dataclass(frozen=True)
class DataLoaderOptions(LoaderOptions):
    """PyTorch's DataLoader.

    `pin_memory` null pins if the device benefits; `prefetch_factor` is the number of batches that each worker loads
    ahead. `prefetch_to_device` copies each batch while the device computes the previous step.
    """

    name: str = "dataloader"
    shuffle: bool = True
    pin_memory: bool | None = None
    persistent_workers: bool = True
    prefetch_factor: int = field(default=2, metadata=limits(ge=1, le=_MAX_PREFETCH))
    prefetch_to_device: bool = False

    def _special_faults(self) -> list[str]:
        if not self.prefetch_to_device or self.pin_memory is not False:
            return []
        rule = "be true or null with `loader.prefetch_to_device=true`"
        way_out = "only pinned memory can be copied while the device computes"
        return [fault("loader.pin_memory", rule, "false", way_out)]


@dataclass(frozen=True)
class ResidentOptions(LoaderOptions):
    """The whole dataset in the memory of the training device."""

    name: str = "resident"
    shuffle: bool = True


@dataclass(frozen=True)
class MeasureOptions(GroupOptions):
    """One run at a time, each measured on its own; the first `warmup_epochs` never count."""

    group: ClassVar[str] = "measure"

    name: str = "single"
    warmup_epochs: int = field(default=1, metadata=limits(ge=1))


@dataclass(frozen=True)
class PairedOptions(MeasureOptions):
    """Interleaved runs that differ only in `axis` and the seed: they take turns, and one works at a time.

    After their epochs they take further steps in rounds: one turn each, in an order drawn for every round. After
    `min_rounds` rounds or more their processes are restarted, until the speedups' intervals reach no more than
    `half_width` to either side or `max_seconds` are spent on it. A turn has `block_steps` steps; null chooses the steps
    that take a tenth of a second, at most an epoch. `axis` null means the only setting that varies, or `device` if
    several vary.
    """

    name: str = "paired"
    axis: str | None = None
    half_width: float = field(default=0.01, metadata=limits(gt=0, lt=1, way_out="0.01 means 1%"))
    max_seconds: float = field(default=60.0, metadata=limits(gt=0))
    min_rounds: int = field(default=10, metadata=limits(ge=1))
    block_steps: int | None = field(default=None, metadata=limits(ge=1))


OPTION_TYPES: dict[str, dict[str, type[GroupOptions]]] = {
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
    "measure": {"single": MeasureOptions, "paired": PairedOptions},
}
