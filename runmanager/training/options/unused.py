"""The settings that a cell has and does not heed, because another of its settings leaves them nothing to do."""

from collections.abc import Iterable
from typing import Any

from runmanager.tracking.options import CAPTURING_DEVICES, STREAMING_DEVICES
from runmanager.training.options.dataset import DigitsOptions, DiscOptions, FakeOptions
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
    """By dotted name, the settings to which this cell would be the same without them, each with the fault to say."""
    return {
        **_of_loader(cell),
        **_of_early_stop(cell),
        **_of_scheduler(cell),
        **_of_tensorboard(cell),
        **_of_data(cell),
        **_of_step(cell),
    }


def unused_setting_faults(cells: Iterable[TrainingOptions], given: Iterable[str]) -> list[str]:
    """A fault for each value of a `given` setting that none of these cells heeds.

    A grid may hold cells with and without use for a setting: `num_workers=0,1 loader.prefetch_factor=4` is one. What a
    preset sets, and nobody gave, may lie idle: so every setting of a preset can be changed.
    """
    idle = [(cell, unused_settings(cell)) for cell in cells]
    faults: dict[str, None] = {}
    for name in given:
        if not any(name in lines for _, lines in idle):
            continue
        heeded = {repr(_value(cell, name)) for cell, lines in idle if name not in lines}
        faults |= {
            lines[name]: None for cell, lines in idle if name in lines and repr(_value(cell, name)) not in heeded
        }
    return list(faults)


def _value(cell: TrainingOptions, name: str) -> Any:
    value: Any = cell
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _of_loader(cell: TrainingOptions) -> dict[str, str]:
    loader = cell.loader
    if not isinstance(loader, DataLoaderOptions):
        return {}
    idle = {}
    if cell.num_workers == 0:
        for name in ("loader.prefetch_factor", "loader.persistent_workers"):
            idle[name] = fault(name, "be given with workers", "`num_workers`=0", "set `num_workers`, or leave it out")
    if loader.pin_memory and cell.device == "cpu":
        way_out = "nothing is sent to a device; null pins where it helps"
        idle["loader.pin_memory"] = fault("loader.pin_memory", "be false or null with `device=cpu`", "true", way_out)
    if loader.prefetch_to_device and cell.device.partition(":")[0] not in ("auto", *STREAMING_DEVICES):
        name, way_out = "loader.prefetch_to_device", "cuda and xpu copy a batch while they compute"
        idle[name] = fault(name, f"be false with `device={cell.device}`", "true", way_out)
    return idle


def _of_early_stop(cell: TrainingOptions) -> dict[str, str]:
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


def _of_scheduler(cell: TrainingOptions) -> dict[str, str]:
    scheduler = cell.scheduler
    if isinstance(scheduler, CosineOptions) and cell.epochs == 1:
        line = fault("epochs", "be at least 2 with `scheduler=cosine`", 1, "the rate changes after an epoch")
        return dict.fromkeys(("scheduler", "scheduler.min_lr"), line)
    if not isinstance(scheduler, MultistepOptions):
        return {}
    late = [epoch for epoch in scheduler.milestones if epoch >= cell.epochs]
    if not late:
        return {}
    way_out = "nothing is trained after the last epoch"
    line = fault("scheduler.milestones", f"be below `epochs`={cell.epochs}", late, way_out)
    names = ["scheduler.milestones"]
    return dict.fromkeys(names if late != scheduler.milestones else [*names, "scheduler", "scheduler.gamma"], line)


def _of_tensorboard(cell: TrainingOptions) -> dict[str, str]:
    shown = cell.tensorboard
    if shown.enabled:
        if not isinstance(cell.dataset, DiscOptions):
            return {}
        rule, way_out = "be false with `dataset=disc`", "the disc's samples are points"
        names = [f"tensorboard.{name}" for name in ("images", "predictions") if getattr(shown, name)]
        return {name: fault(name, rule, "true", way_out) for name in names}
    way_out = "there is no event file for it; leave one of the two out"
    idle = {
        f"tensorboard.{name}": fault(
            f"tensorboard.{name}", "be false with `tensorboard.enabled=false`", "true", way_out
        )
        for name in ("images", "graph", "histograms", "predictions", "confusion_matrix")
        if getattr(shown, name)
    }
    if cell.log_every:
        idle["log_every"] = fault("log_every", "be 0 with `tensorboard.enabled=false`", cell.log_every, way_out)
    return idle


def _of_data(cell: TrainingOptions) -> dict[str, str]:
    if not isinstance(cell.dataset, DigitsOptions | DiscOptions | FakeOptions):
        return {}
    way_out = "choose a dataset that lies in a folder, like `dataset=mnist`, or leave it out"
    return {
        "data_root": fault("data_root", "be given with data that are read", f"`dataset={cell.dataset.name}`", way_out)
    }


def _of_step(cell: TrainingOptions) -> dict[str, str]:
    idle = {}
    if cell.channels_last and (seen := _without_channels(cell)):
        way_out = "there are no channels to lie last"
        idle["channels_last"] = fault("channels_last", f"be false with {seen}", "true", way_out)
    if cell.graphs is True and cell.device.partition(":")[0] not in ("auto", *CAPTURING_DEVICES):
        idle["graphs"] = fault("graphs", f"be false or auto with `device={cell.device}`", "true", "cuda captures steps")
    largest = max(cell.batch_size, cell.eval_batch_size or 0)
    if isinstance(cell.micro_batch, int) and cell.micro_batch >= largest:
        idle["micro_batch"] = fault("micro_batch", f"be below the batch size, {largest}", cell.micro_batch)
    return idle


def _without_channels(cell: TrainingOptions) -> str:
    """What makes of the samples something else than images before anything else is done; empty where nothing does."""
    if isinstance(cell.dataset, DiscOptions):
        return "`dataset=disc`"
    if isinstance(cell.dataset, FakeOptions) and len(cell.dataset.in_shape) != 3:
        return f"`dataset.in_shape`={cell.dataset.in_shape}"
    return f"`model={cell.model.name}`" if isinstance(cell.model, _FLAT_MODELS) else ""
