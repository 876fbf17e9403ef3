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
from runmanager.validation import GroupOptions, allowed, fault, limits, range_faults

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
    """Linear layers with ReLU between them."""

    name: str = "mlp"
    hidden: list[int] = field(default_factory=lambda: [32], metadata=allowed("one or more, each at least 1"))
    """Widths of the hidden layers."""

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
    """Number of linear layers, the last one included."""


@dataclass(frozen=True)
class TorchvisionModelOptions(ModelOptions):
    """An untrained torchvision classifier by name."""

    name: str = "torchvision"
    architecture: str = "resnet18"
    """Name of the classifier in torchvision.models."""
    input_size: int | None = field(default=None, metadata=limits(ge=1))
    """Side length to which images are resized; null is the one that the architecture needs."""


@dataclass(frozen=True)
class OptimizerOptions(GroupOptions):
    """Settings of an optimiser."""

    group: ClassVar[str] = "optimizer"


@dataclass(frozen=True)
class SgdOptions(OptimizerOptions):
    """Stochastic gradient descent."""

    name: str = "sgd"
    momentum: float = field(default=0.0, metadata=limits(ge=0, lt=1))
    """Share of the previous update that is added to each update."""
    weight_decay: float = field(default=0.0, metadata=limits(ge=0))
    """Factor of the weights that is added to the gradient."""
    nesterov: bool = False
    """Use Nesterov's form of momentum."""
    fused: bool | None = None
    """Update all parameters in one kernel; null is false: the gain is small, and sparse gradients are rejected."""

    def _special_faults(self) -> list[str]:
        if not self.nesterov or self.momentum != 0:
            return []
        way_out = "set `optimizer.momentum`, or `optimizer.nesterov=false`"
        return [fault("optimizer.momentum", "be above 0 for Nesterov's method", self.momentum, way_out)]


@dataclass(frozen=True)
class AdamOptions(OptimizerOptions):
    """Adam."""

    name: str = "adam"
    betas: list[float] = field(
        default_factory=lambda: [0.9, 0.999], metadata=allowed("two numbers, each at least 0, below 1")
    )
    """Decay rates of the running means of the gradient and of its square."""
    eps: float = field(default=1e-8, metadata=limits(ge=0))
    """Added to the denominator of the update."""
    weight_decay: float = field(default=0.0, metadata=limits(ge=0))
    """Factor of the weights that is added to the gradient."""
    fused: bool | None = None
    """Update all parameters in one kernel; null is true on CPU and CUDA, where it is several times as fast."""

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
    """Factor by which the weights shrink in a step, times the learning rate."""


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
    milestones: list[int] = field(default_factory=list, metadata=allowed("rising epochs from 1 on"))
    """Finished epochs after which the learning rate is multiplied by `scheduler.gamma`."""
    gamma: float = field(default=0.1, metadata=limits(gt=0))
    """Factor of the learning rate at each milestone."""

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
    """The learning rate at the end."""


@dataclass(frozen=True)
class OneCycleOptions(SchedulerOptions):
    """The learning rate rises from a 25th of `lr` to `lr` in `pct_start` of all steps, then falls to almost 0."""

    name: str = "onecycle"
    pct_start: float = field(default=0.3, metadata=limits(ge=0, lt=1))
    """Share of all steps in which the learning rate rises."""


@dataclass(frozen=True)
class LoaderOptions(GroupOptions):
    """Settings of a loader."""

    group: ClassVar[str] = "loader"


@dataclass(frozen=True)
class DataLoaderOptions(LoaderOptions):
    """PyTorch's DataLoader."""

    name: str = "dataloader"
    shuffle: bool = True
    """Draw the training samples in a new order for each epoch."""
    pin_memory: bool | None = None
    """Load batches into pinned memory; null does so if the device benefits."""
    persistent_workers: bool = True
    """Keep the loader's processes from one epoch to the next."""
    prefetch_factor: int = field(default=2, metadata=limits(ge=1, le=_MAX_PREFETCH))
    """Batches that each worker loads ahead."""
    prefetch_to_device: bool = False
    """Copy each batch to the device while it computes the previous step."""

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
    """Draw the training samples in a new order for each epoch."""


@dataclass(frozen=True)
class MeasureOptions(GroupOptions):
    """One run at a time, each measured on its own; the first `warmup_epochs` never count."""

    group: ClassVar[str] = "measure"

    name: str = "single"
    warmup_epochs: int = field(default=1, metadata=limits(ge=1))
    """Epochs at the start of a process that never count."""


@dataclass(frozen=True)
class PairedOptions(MeasureOptions):
    """Interleaved runs that differ only in `axis` and the seed: they take turns, and one works at a time.

    After their epochs they take further steps in rounds: one turn each, in an order drawn for every round. After
    `min_rounds` rounds or more their processes are restarted, until the speedups are known well enough or the time is
    spent.
    """

    name: str = "paired"
    axis: str | None = None
    """The compared setting; null is the only one that varies, or `device` if several vary."""
    half_width: float = field(default=0.01, metadata=limits(gt=0, lt=1, way_out="0.01 means 1%"))
    """Stop when the interval of each speedup extends at most this share to either side."""
    max_seconds: float = field(default=60.0, metadata=limits(gt=0))
    """Stop after this many seconds per comparison, restarts included."""
    min_rounds: int = field(default=10, metadata=limits(ge=1))
    """Least number of rounds of each pair of processes; fewer than 6 count as 6."""
    block_steps: int | None = field(default=None, metadata=limits(ge=1))
    """Optimiser steps of a turn; null is as many as take 0.1 s, at most an epoch."""


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
