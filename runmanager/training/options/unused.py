"""Settings of a cell that have no effect because of another of its settings."""

from collections.abc import Iterable
from typing import Any

from runmanager.tracking.options import CAPTURING_DEVICES, STREAMING_DEVICES
from runmanager.training.options.dataset import DiscOptions, FakeOptions
from runmanager.training.options.groups import (
    CosineOptions,
    DataLoaderOptions,
    LogisticOptions,
    MlpOptions,
    MlpTowerOptions,
    MultistepOptions,
)
from runmanager.training.options.job import TrainingOptions
from runmanager.validation import fault

__all__ = ["unused_setting_faults", "unused_settings"]

_FLAT_MODELS = (LogisticOptions, MlpOptions, MlpTowerOptions)


def unused_settings(cell: TrainingOptions) -> dict[str, str]:
    """Settings without effect in this cell, by dotted name, each with its fault as a line."""
    return {
        **_unused_of_loader(cell),
        **_unused_of_early_stop(cell),
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
