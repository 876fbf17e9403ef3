"""The settings of the built-in job that stand at the top level. Loads no torch."""

from dataclasses import dataclass, field
from typing import Any

from runmanager.tracking.options import METRICS, EarlyStopOptions, TensorBoardOptions
from runmanager.training.options.choice import Options
from runmanager.training.options.measure import MeasureOptions, PairedOptions
from runmanager.training.options.step import Precision, fixed_step_faults, step_faults
from runmanager.validation import at_least_faults, did_you_mean, fault, range_faults

__all__ = ["CheckpointOptions", "TrainingOptions"]


_DEVICES = ("auto", "cpu", "cuda", "mps", "xpu", "hpu", "mtia", "npu")
_MOST = 2**31 - 1  # of anything that is counted: more do not fit the numbers that PyTorch passes on


@dataclass(frozen=True)
class CheckpointOptions:
    """`every`: save after each so many epochs, and after the last; 0 saves none, and a killed run then starts anew.

    `keep_best` names a metric (loss, accuracy, val_loss, val_accuracy): the weights of the epoch that is best by it
    are kept in best.pt, and such an epoch is saved too; null keeps none.
    """

    every: int = 1
    keep_best: str | None = None


@dataclass(frozen=True)
class TrainingOptions:
    """What a cell says about training. The groups hold an options dataclass each, or a mapping with `_target_`."""

    lr: float = 0.01
    batch_size: int = 1000
    num_workers: int = 0
    device: str = "auto"
    epochs: int = 5
    seed: int = 0
    eval_batch_size: int | None = None
    evaluate_first: bool = False
    precision: str = "fp32"
    channels_last: bool = False
    micro_batch: int | str | None = None
    on_oom: str = "fail"
    compile: bool = False
    graphs: bool | str = False
    data_root: str = "data"
    log_every: int = 0
    dataset: Any = None
    model: Any = None
    optimizer: Any = None
    scheduler: Any = None
    loader: Any = None
    measure: MeasureOptions = field(default_factory=MeasureOptions)
    checkpoint: CheckpointOptions = field(default_factory=CheckpointOptions)
    early_stop: EarlyStopOptions = field(default_factory=EarlyStopOptions)
    tensorboard: TensorBoardOptions = field(default_factory=TensorBoardOptions)

    def faults(self) -> list[str]:
        """Every fault of these values, and of what they say together, as readable lines."""
        faults = self._bad_numbers() + self._bad_early_stop() + self._bad_checkpoint() + self._contradictions()
        for part in (self.dataset, self.model, self.optimizer, self.scheduler, self.loader):
            if isinstance(part, Options):
                faults += part.faults()
        return faults

    def _bad_numbers(self) -> list[str]:
        faults = [] if 0 < self.lr < float("inf") else [fault("lr", "be above 0 and finite", self.lr)]
        faults += at_least_faults("batch_size", self.batch_size, 1) + at_least_faults(
            "num_workers", self.num_workers, 0
        )
        faults += at_least_faults("epochs", self.epochs, 1) + at_least_faults(
            "eval_batch_size", self.eval_batch_size, 1
        )
        faults += at_least_faults("log_every", self.log_every, 0) + at_least_faults(
            "checkpoint.every", self.checkpoint.every, 0
        )
        faults += [
            fault(name, f"be at most {_MOST}", value)
            for name in ("batch_size", "eval_batch_size", "num_workers", "epochs")
            if (value := getattr(self, name)) is not None and value > _MOST
        ]
        faults += self._bad_device()
        faults += step_faults(
            precision=self.precision, micro_batch=self.micro_batch, on_oom=self.on_oom, device=self.device
        )
        faults += fixed_step_faults(
            compile=self.compile, graphs=self.graphs, micro_batch=self.micro_batch, on_oom=self.on_oom
        )
        faults += range_faults("seed", self.seed, 0, 2**63)
        return faults + self.measure.faults()

    def _bad_checkpoint(self) -> list[str]:
        metric = self.checkpoint.keep_best
        if metric is None:
            return []
        if metric not in METRICS:
            return [
                fault("checkpoint.keep_best", f"be one of {', '.join(METRICS)}", metric, did_you_mean(metric, METRICS))
            ]
        if self.checkpoint.every == 0:
            return [fault("checkpoint.every", "be at least 1 with `checkpoint.keep_best`", 0)]
        return []

    def _bad_device(self) -> list[str]:
        kind, given, number = self.device.partition(":")
        if kind in _DEVICES and (not given or (number.isdecimal() and kind not in ("auto", "cpu"))):
            return []
        way_out = "a number names one of several accelerators, as in cuda:1"
        if kind not in _DEVICES:
            way_out = "NVIDIA's and AMD's GPUs are cuda" if kind.lower() == "gpu" else did_you_mean(kind, _DEVICES)
        return [fault("device", f"be one of {', '.join(_DEVICES)}", repr(self.device), way_out)]

    def _bad_early_stop(self) -> list[str]:
        metric, stop = self.early_stop.metric, self.early_stop
        faults = at_least_faults("early_stop.patience", stop.patience, 1)
        faults += range_faults("early_stop.min_delta", stop.min_delta, 0, float("inf"))
        if metric is not None and metric not in METRICS:
            faults.append(
                fault("early_stop.metric", f"be one of {', '.join(METRICS)}", metric, did_you_mean(metric, METRICS))
            )
        return faults

    def _contradictions(self) -> list[str]:
        faults = []
        if getattr(self.loader, "name", "") == "resident" and self.num_workers > 0:
            way_out = "there is nothing for workers to load; use `loader=dataloader`"
            faults.append(fault("num_workers", "be 0 with `loader=resident`", self.num_workers, way_out))
        least = getattr(self.scheduler, "min_lr", None)
        if least is not None and least >= self.lr:
            faults.append(fault("scheduler.min_lr", f"be below `lr`={self.lr}", least))
        if isinstance(self.measure, PairedOptions) and self.measure.block_steps is not None and self.num_workers > 0:
            way_out = "a turn is then an epoch, as workers would load ahead while others have the machine"
            faults.append(
                fault(
                    "measure.block_steps", "be null where `num_workers` is above 0", self.measure.block_steps, way_out
                )
            )
        if self.precision == Precision.FP16 and getattr(self.optimizer, "fused", None) is False:
            way_out = "scaled gradients of any other make each step wait for the device"
            faults.append(fault("optimizer.fused", "be null or true with `precision=fp16`", "false", way_out))
        dataset, model = getattr(self.dataset, "name", ""), getattr(self.model, "name", "")
        if dataset == "disc" and model in ("cnn", "torchvision"):
            way_out = "the disc's samples are points; use `model=mlp_tower`, mlp or logistic"
            faults.append(fault("model", "take points with `dataset=disc`", model, way_out))
        return faults
