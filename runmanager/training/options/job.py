"""Top-level settings of the built-in job, with the checks of their values and combinations. Loads no torch."""

from dataclasses import dataclass, field
from typing import Any

from runmanager.tracking.options import RECORDED, EarlyStopOptions, TensorBoardOptions
from runmanager.training.options.criteria import (
    DEFAULT_LOSS,
    criteria_faults,
    recorded_metrics,
    unknown_metric_faults,
)
from runmanager.training.options.groups import DataLoaderOptions, MeasureOptions, PairedOptions
from runmanager.training.options.step import AUTO, OutOfMemory, Precision, step_faults
from runmanager.validation import MAX_COUNT, GroupOptions, allowed, did_you_mean, fault, field_faults, limits

__all__ = ["CheckpointOptions", "TrainingOptions"]


_DEVICES = ("auto", "cpu", "cuda", "mps", "xpu", "hpu", "mtia", "npu")
_BATCHES_A_WORKER = 2  # workers deliver their batches in bursts, and a turn must not see a part of one
_NUM_WARMUPS_OF_GRAPHS = 2  # steps of each warm-up turn where steps are captured, which three plain ones precede


@dataclass(frozen=True)
class CheckpointOptions:
    """Settings of checkpoints; the epochs that `keep_best` keeps are saved as checkpoints too."""

    every: int = field(default=1, metadata=limits(ge=0))
    """Epochs between two checkpoints; the last epoch is always saved. 0 saves none: a killed run then starts again."""
    keep_best: str | None = field(default=None, metadata=allowed(RECORDED))
    """A recorded metric: the weights of the epoch with its best value are kept in best.pt. null keeps none."""


@dataclass(frozen=True)
class TrainingOptions:
    """Settings of a cell that concern training; each group is an options dataclass or a mapping with `_target_`."""

    lr: float = field(default=0.01, metadata=limits(gt=0))
    """The learning rate; a schedule takes it as its highest value."""
    batch_size: int = field(default=1000, metadata=limits(ge=1, le=MAX_COUNT))
    """Samples of an optimiser step."""
    num_workers: int = field(default=0, metadata=limits(ge=0, le=MAX_COUNT))
    """Processes that load batches; 0 loads them in the run's own process."""
    device: str = field(default="auto", metadata=allowed(f"{', '.join(_DEVICES)}; with a number, as in cuda:1"))
    """The device to train on; `auto` is the accelerator if there is one, else the CPU."""
    epochs: int = field(default=8, metadata=limits(ge=1, le=MAX_COUNT))
    """Passes over the training samples."""
    seed: int = field(default=0, metadata=limits(ge=0, lt=2**63))
    """Seed of the weights, the order of the samples and everything else that is random in a run."""
    eval_batch_size: int | None = field(default=None, metadata=limits(ge=1, le=MAX_COUNT))
    """Samples that the evaluation takes at once; null takes `batch_size`."""
    evaluate_first: bool = False
    """Evaluate the untrained model too, as epoch 0."""
    precision: str = field(default="fp32", metadata=limits(choices=list(Precision)))
    """The type in which products are computed: bf16 and fp16 by autocast, tf32 rounds products of float32."""
    channels_last: bool | str = field(default=AUTO, metadata=allowed("true, false, auto"))
    """Store weights and images with their channels last; `auto` does so where it is faster and computes the same."""
    micro_batch: int | str | None = field(default=AUTO, metadata=limits(ge=1) | allowed("null, auto, at least 1"))
    """Samples of a step that are computed at once; null computes all, `auto` fewer where faster and the same."""
    on_oom: str = field(default="fail", metadata=limits(choices=list(OutOfMemory)))
    """What a step that does not fit into memory does: `fail` the run, or `halve`, again in smaller pieces."""
    compile: bool = False
    """Compile the forward and backward pass with `torch.compile` before the first epoch."""
    graphs: bool | str = field(default=False, metadata=allowed("true, false, auto"))
    """Capture a step on CUDA once and replay it; `auto` does so only where it is safe."""
    data_root: str = "data"
    """The folder of downloaded datasets; the environment variable RUNMANAGER_DATA sets another default."""
    log_every: int = field(default=0, metadata=limits(ge=0))
    """Steps between two losses in TensorBoard; 0 writes those of epochs only."""
    dataset: Any = None
    """The samples to train and evaluate on; `dataset=custom` takes your own class."""
    model: Any = None
    """The network; `model=custom` takes your own class."""
    loss: Any = field(default_factory=lambda: {"_target_": DEFAULT_LOSS})
    """The function that training minimises; `loss=custom` takes your own class."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Further metrics of the evaluation: `metrics.NAME._target_` is a class, recorded as `val_NAME`."""
    optimizer: Any = None
    """The algorithm that updates the weights."""
    scheduler: Any = None
    """How the learning rate changes during a run."""
    loader: Any = None
    """Where the samples lie and how batches are made of them."""
    measure: MeasureOptions = field(default_factory=MeasureOptions)
    """Whether runs are measured one by one, or interleaved in pairs."""
    checkpoint: CheckpointOptions = field(default_factory=CheckpointOptions)
    """When a run saves its state, to resume after a kill, and its best weights."""
    early_stop: EarlyStopOptions = field(default_factory=EarlyStopOptions)
    """When a run ends before its last epoch because a metric no longer improves."""
    tensorboard: TensorBoardOptions = field(default_factory=TensorBoardOptions)
    """What a run's event file contains."""

    def faults(self) -> list[str]:
        """Every fault of single values and of their combinations, as lines."""
        faults = field_faults(self) + self._device_faults()
        faults += step_faults(
            precision=self.precision,
            channels_last=self.channels_last,
            micro_batch=self.micro_batch,
            on_oom=self.on_oom,
            device=self.device,
            compile=self.compile,
            graphs=self.graphs,
        )
        faults += field_faults(self.checkpoint, "checkpoint.") + field_faults(self.early_stop, "early_stop.")
        faults += criteria_faults(self.loss, self.metrics) + self._metric_faults()
        faults += self._combination_faults()
        for part in (self.measure, self.dataset, self.model, self.optimizer, self.scheduler, self.loader):
            if isinstance(part, GroupOptions):
                faults += part.faults()
        return faults

    def least_turn_steps(self, steps_an_epoch: int) -> int:
        """Return the fewest steps of a turn: a few batches of each loader worker, or a whole epoch if that is less.

        Workers that each epoch starts again make it a whole epoch too.
        """
        keeps_workers = not isinstance(self.loader, DataLoaderOptions) or self.loader.persistent_workers
        if self.num_workers and not keeps_workers:
            return steps_an_epoch
        least = max(1, _BATCHES_A_WORKER * self.num_workers, _NUM_WARMUPS_OF_GRAPHS if self.graphs else 1)
        return min(least, steps_an_epoch)

    def _device_faults(self) -> list[str]:
        kind, colon, index = self.device.partition(":")
        if kind in _DEVICES and (not colon or (index.isdecimal() and kind not in ("auto", "cpu"))):
            return []
        way_out = "a number names one of several accelerators, as in cuda:1"
        if kind not in _DEVICES:
            way_out = "NVIDIA's and AMD's GPUs are cuda" if kind.lower() == "gpu" else did_you_mean(kind, _DEVICES)
        return [fault("device", f"be one of {', '.join(_DEVICES)}", repr(self.device), way_out)]

    def _metric_faults(self) -> list[str]:
        known = recorded_metrics(self.loss, self.metrics)
        faults = unknown_metric_faults("early_stop.metric", self.early_stop.metric, known)
        return faults + unknown_metric_faults("checkpoint.keep_best", self.checkpoint.keep_best, known)

    def _combination_faults(self) -> list[str]:
        faults = []
        if self.checkpoint.keep_best is not None and self.checkpoint.every == 0:
            faults.append(fault("checkpoint.every", "be at least 1 with `checkpoint.keep_best`", 0))
        if getattr(self.loader, "name", "") == "resident" and self.num_workers > 0:
            way_out = "workers would have nothing to load; use `loader=dataloader`"
            faults.append(fault("num_workers", "be 0 with `loader=resident`", self.num_workers, way_out))
        min_lr = getattr(self.scheduler, "min_lr", None)
        if min_lr is not None and min_lr >= self.lr:
            faults.append(fault("scheduler.min_lr", f"be below `lr`={self.lr}", min_lr))
        if isinstance(self.measure, PairedOptions) and self.measure.block_steps is not None and self.num_workers > 0:
            rule, value = "be null where `num_workers` is above 0", self.measure.block_steps
            way_out = "a turn is then an epoch, as workers would load ahead during the turns of other runs"
            faults.append(fault("measure.block_steps", rule, value, way_out))
        if self.precision == Precision.FP16 and getattr(self.optimizer, "fused", None) is False:
            way_out = "with scaled gradients every step of an unfused optimiser waits for the device"
            faults.append(fault("optimizer.fused", "be null or true with `precision=fp16`", "false", way_out))
        dataset, model = getattr(self.dataset, "name", ""), getattr(self.model, "name", "")
        if dataset == "disc" and model in ("cnn", "torchvision"):
            way_out = "the disc's samples are points; use `model=mlp_tower`, mlp or logistic"
            faults.append(fault("model", "take points with `dataset=disc`", model, way_out))
        return faults
