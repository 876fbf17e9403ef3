"""Top-level settings of the built-in job, with the checks of their values and combinations. Loads no torch."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from runmanager.tracking.options import (
    CAPTURING_DEVICES,
    RECORDED,
    STREAMING_DEVICES,
    EarlyStopOptions,
    TensorBoardOptions,
)
from runmanager.training.options.dataset import (
    DEFAULT_LOSS,
    DiscOptions,
    FakeOptions,
    criteria_faults,
    recorded_metrics,
    unknown_metric_faults,
)
from runmanager.training.options.groups import (
    CosineOptions,
    DataLoaderOptions,
    LogisticOptions,
    MeasureOptions,
    MlpOptions,
    MlpTowerOptions,
    MultistepOptions,
    PairedOptions,
)
from runmanager.validation import MAX_COUNT, GroupOptions, allowed, did_you_mean, fault, field_faults, limits

AUTO = "auto"


class Precision(StrEnum):
    """The type in which products are computed.

    `fp32`: the weights' own type; `tf32`: float32 rounded to TF32; `bf16`, `fp16`: autocast to that type.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"

    @property
    def is_cast(self) -> bool:
        """Whether it differs from the type of the weights."""
        return self in (Precision.BF16, Precision.FP16)


class OutOfMemory(StrEnum):
    """What to do if a step does not fit the memory: fail the run, or repeat the step in smaller pieces."""

    FAIL = "fail"
    HALVE = "halve"


def cpu_precision_fault(precision: str) -> str:
    """Fault of a precision that only accelerators support."""
    return fault("precision", "be fp32 or bf16 on the CPU", precision, "or leave the CPU out")


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
class InferOptions:
    """Settings of the inference that is timed after training; a finished run is measured without training again."""

    batch_sizes: list[int] = field(default_factory=list, metadata=allowed("each at least 1"))
    """Sizes of the batches with which single calls of the network are timed; none times no call."""
    seconds: float = field(default=1.0, metadata=limits(gt=0))
    """How long calls with batches of one size are timed."""

    def faults(self) -> list[str]:
        """Every fault, as lines."""
        faults = field_faults(self, "infer.")
        if self.batch_sizes and not 1 <= min(self.batch_sizes) <= max(self.batch_sizes) <= MAX_COUNT:
            faults.append(fault("infer.batch_sizes", "hold sizes of at least 1", self.batch_sizes))
        return faults


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
    cudnn_benchmark: bool = False
    """Let cuDNN try its algorithms for each shape on CUDA and take the fastest; results then differ in rounding."""
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
    infer: InferOptions = field(default_factory=InferOptions)
    """With which batches the trained network is timed."""
    tensorboard: TensorBoardOptions = field(default_factory=TensorBoardOptions)
    """What a run's event file contains."""

    def faults(self) -> list[str]:
        """Every fault of single values and of their combinations, as lines."""
        faults = field_faults(self) + self._device_faults()
        faults += self._step_faults()
        faults += field_faults(self.checkpoint, "checkpoint.") + field_faults(self.early_stop, "early_stop.")
        faults += self.infer.faults() + criteria_faults(self.loss, self.metrics) + self._metric_faults()
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

    def _step_faults(self) -> list[str]:
        faults = []
        if isinstance(self.channels_last, str) and self.channels_last != AUTO:
            rule, way_out = "be true, false or auto", "auto chooses by device and model"
            faults.append(fault("channels_last", rule, repr(self.channels_last), way_out))
        if isinstance(self.micro_batch, str) and self.micro_batch != AUTO:
            rule, way_out = "be null, auto or a number of samples", "null computes the whole batch at once"
            faults.append(fault("micro_batch", rule, repr(self.micro_batch), way_out))
        if self.device == "cpu" and self.precision in (Precision.TF32, Precision.FP16):
            faults.append(cpu_precision_fault(self.precision))
        if isinstance(self.graphs, str) and self.graphs != AUTO:
            return [
                *faults,
                fault("graphs", "be true, false or auto", repr(self.graphs), "auto replays steps where it is safe"),
            ]
        for name in (name for name, value in (("compile", self.compile), ("graphs", self.graphs is True)) if value):
            if self.on_oom == OutOfMemory.HALVE:
                way_out = "smaller pieces change the step; set a size that fits with `micro_batch`"
                faults.append(fault("on_oom", f"be fail with `{name}=true`", self.on_oom, way_out))
        return faults

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


_FLAT_MODELS = (LogisticOptions, MlpOptions, MlpTowerOptions)


def unused_settings(cell: TrainingOptions) -> dict[str, str]:
    """Settings without effect in this cell, by dotted name, each with its fault as a line."""
    return {
        **_unused_of_loader(cell),
        **_unused_of_early_stop(cell),
        **_unused_of_infer(cell),
        **_unused_of_scheduler(cell),
        **_unused_of_tensorboard(cell),
        **_unused_of_step(cell),
    }


def unused_setting_faults(cells: Iterable[TrainingOptions], given: Iterable[str]) -> list[str]:
    """Check that every value of the `given` settings has an effect in at least one cell: one fault for each other.

    A grid may contain cells in which a setting has no effect, as `num_workers=0,1 loader.prefetch_factor=4` does.
    Settings of a preset that are not given may be without effect, so that every setting of a preset can be changed.
    """
    unused = [(cell, unused_settings(cell)) for cell in cells]
    faults: dict[str, None] = {}
    for name in given:
        if not any(name in lines for _, lines in unused):
            continue
        used_values = {repr(_value(cell, name)) for cell, lines in unused if name not in lines}
        faults |= {
            lines[name]: None for cell, lines in unused if name in lines and repr(_value(cell, name)) not in used_values
        }
    return list(faults)


def _value(cell: TrainingOptions, name: str) -> Any:
    value: Any = cell
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _unused_of_loader(cell: TrainingOptions) -> dict[str, str]:
    loader = cell.loader
    if not isinstance(loader, DataLoaderOptions):
        return {}
    unused = {}
    if cell.num_workers == 0:
        for name in ("loader.prefetch_factor", "loader.persistent_workers"):
            unused[name] = fault(name, "be given with workers", "`num_workers`=0", "set `num_workers`, or leave it out")
    if loader.pin_memory and cell.device == "cpu":
        way_out = "nothing is copied to a device; null pins if the device benefits"
        unused["loader.pin_memory"] = fault("loader.pin_memory", "be false or null with `device=cpu`", "true", way_out)
    if loader.prefetch_to_device and cell.device.partition(":")[0] not in ("auto", *STREAMING_DEVICES):
        name, way_out = "loader.prefetch_to_device", "only cuda and xpu copy a batch while they compute"
        unused[name] = fault(name, f"be false with `device={cell.device}`", "true", way_out)
    return unused


def _unused_of_early_stop(cell: TrainingOptions) -> dict[str, str]:
    stop = cell.early_stop
    if stop.metric is None:
        way_out = "set it, or leave this out"
        return {
            name: fault(name, "be given with `early_stop.metric`", "no metric", way_out)
            for name in ("early_stop.patience", "early_stop.min_delta")
        }
    if stop.patience < cell.epochs:
        return {}
    rule = f"be below `epochs`={cell.epochs} for a run to stop early"
    line = fault("early_stop.patience", rule, stop.patience)
    return dict.fromkeys(("early_stop.metric", "early_stop.patience", "early_stop.min_delta"), line)


def _unused_of_infer(cell: TrainingOptions) -> dict[str, str]:
    if cell.infer.batch_sizes:
        return {}
    way_out = "as in infer.batch_sizes=[1,32], or leave this out"
    return {"infer.seconds": fault("infer.seconds", "be given with `infer.batch_sizes`", "no sizes", way_out)}


def _unused_of_scheduler(cell: TrainingOptions) -> dict[str, str]:
    scheduler = cell.scheduler
    if isinstance(scheduler, CosineOptions) and cell.epochs == 1:
        line = fault("epochs", "be at least 2 with `scheduler=cosine`", 1, "the rate changes only between epochs")
        return dict.fromkeys(("scheduler", "scheduler.min_lr"), line)
    if not isinstance(scheduler, MultistepOptions):
        return {}
    late = [epoch for epoch in scheduler.milestones if epoch >= cell.epochs]
    if not late:
        return {}
    way_out = "training ends after the last epoch"
    line = fault("scheduler.milestones", f"be below `epochs`={cell.epochs}", late, way_out)
    names = ["scheduler.milestones"]
    return dict.fromkeys(names if late != scheduler.milestones else [*names, "scheduler", "scheduler.gamma"], line)


def _unused_of_tensorboard(cell: TrainingOptions) -> dict[str, str]:
    options = cell.tensorboard
    if options.enabled:
        if not isinstance(cell.dataset, DiscOptions):
            return {}
        rule, way_out = "be false with `dataset=disc`", "the disc's samples are points"
        names = [f"tensorboard.{name}" for name in ("images", "predictions") if getattr(options, name)]
        return {name: fault(name, rule, "true", way_out) for name in names}
    way_out = "without an event file it has no effect; leave one of the two out"
    unused = {
        f"tensorboard.{name}": fault(
            f"tensorboard.{name}", "be false with `tensorboard.enabled=false`", "true", way_out
        )
        for name in ("images", "graph", "histograms", "predictions", "confusion_matrix")
        if getattr(options, name)
    }
    if cell.log_every:
        unused["log_every"] = fault("log_every", "be 0 with `tensorboard.enabled=false`", cell.log_every, way_out)
    return unused


def _unused_of_step(cell: TrainingOptions) -> dict[str, str]:
    unused = {}
    if cell.channels_last is True and (reason := _no_channels(cell)):
        way_out = "its inputs have no channels"
        unused["channels_last"] = fault("channels_last", f"be false with {reason}", "true", way_out)
    if cell.graphs is True and cell.device.partition(":")[0] not in ("auto", *CAPTURING_DEVICES):
        unused["graphs"] = fault(
            "graphs", f"be false or auto with `device={cell.device}`", "true", "only cuda captures steps"
        )
    if cell.cudnn_benchmark and cell.device.partition(":")[0] not in ("auto", "cuda"):
        line = fault("cudnn_benchmark", f"be false with `device={cell.device}`", "true", "only cuda has cuDNN")
        unused["cudnn_benchmark"] = line
    largest = max(cell.batch_size, cell.eval_batch_size or 0)
    if isinstance(cell.micro_batch, int) and cell.micro_batch >= largest:
        unused["micro_batch"] = fault("micro_batch", f"be below the batch size, {largest}", cell.micro_batch)
    return unused


def _no_channels(cell: TrainingOptions) -> str:
    """The setting because of which the model's inputs are not images; empty if they may be images."""
    if isinstance(cell.dataset, DiscOptions):
        return "`dataset=disc`"
    if isinstance(cell.dataset, FakeOptions) and len(cell.dataset.in_shape) != 3:
        return f"`dataset.in_shape`={cell.dataset.in_shape}"
    return f"`model={cell.model.name}`" if isinstance(cell.model, _FLAT_MODELS) else ""
