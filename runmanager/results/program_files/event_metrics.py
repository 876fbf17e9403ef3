"""The metrics in a folder's event files, by epoch where the program logged its epochs too."""

from collections.abc import Mapping
from itertools import repeat

from runmanager.results.program_files.metric_series import MetricSeries
from runmanager.results.tfevents.reader import EventFolder, Series

__all__ = ["event_metrics"]

_EPOCH = "epoch"  # the tag of Lightning's TensorBoardLogger
_UNLOGGED = {"hp_metric": -1.0}  # what Lightning writes where the program logs no such metric
_MAX_EPOCH = 2**31


def event_metrics(events: EventFolder) -> dict[str, MetricSeries]:
    """Return the metrics of event files by name; a scalar `epoch` gives the epoch of each step, if it is whole."""
    epochs = _epochs_by_step(events.scalars.get(_EPOCH))
    return {
        name: _reduced(name, series, epochs)
        for name, series in events.scalars.items()
        if name != _EPOCH and (name not in _UNLOGGED or set(series.values) != {_UNLOGGED[name]})
    }


def _epochs_by_step(series: Series | None) -> Mapping[int, int]:
    if series is None or not all(value.is_integer() and 0 <= value < _MAX_EPOCH for value in series.values):
        return {}
    return {step: int(epoch) for step, epoch in zip(series.steps, series.values, strict=True)}


def _reduced(name: str, series: Series, epochs: Mapping[int, int]) -> MetricSeries:
    metric = MetricSeries(name)
    of_steps = map(epochs.get, series.steps) if epochs else repeat(None)
    for step, value, epoch in zip(series.steps, series.values, of_steps, strict=False):
        metric.add(value, step=step, epoch=epoch)
    return metric
