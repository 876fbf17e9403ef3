"""The learning curves of a report's data: each metric of each run over epoch, step, time and samples."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from runmanager.records.run.run_record import EpochRecord, counted_word
from runmanager.records.storage.reader import StoredRun
from runmanager.results.figures.axes import is_drawable
from runmanager.results.figures.figure import sample_evenly
from runmanager.results.figures.learning_curves import METRIC_LABELS
from runmanager.results.load.logged_values import metric_names
from runmanager.results.program_files.metric_curves import metrics_by_step
from runmanager.results.table_model.columns import OUTCOMES
from runmanager.results.table_model.headings import metric_in_words

__all__ = ["curve_data"]

_MIN_VALUES, _VALUES_PER_RUN = 60_000, 140
"""How many values the page may have, so that it stays small: the curves of a small sweep have all."""

_TIMES = ("samples_per_second", "epoch_seconds")
_DIGITS = 4  # as the tables show


@dataclass(frozen=True)
class _Series:
    """Metrics of the run at `place` over common points: `x` by axis and `y` by metric are equally long."""

    place: int
    x: Mapping[str, Sequence[float]]
    y: Mapping[str, Sequence[float | None]]

    @property
    def num_points(self) -> int:
        return len(next(iter(self.y.values())))

    def num_values(self, limit: int) -> int:
        """The number of values if at most `limit` points are kept, with one axis of its own."""
        return min(self.num_points, limit) * (len(self.y) + 1)


def curve_data(runs: Sequence[StoredRun | None]) -> dict[str, Any]:
    """Return `metrics` (their labels by name), `curves` and the values of their axes, `xs`; each is empty without runs.

    Long curves have at most `curvePoints` points at even steps, the first and the last included; `curvesAreThinned`
    says whether one has more. Values are rounded to what is shown, None where one is missing or too large to draw.
    """
    series = [each for place, run in enumerate(runs) if run is not None for each in _series(place, run)]
    longest = max((each.num_points for each in series), default=0)
    limit = _limit(series, longest, _MIN_VALUES + _VALUES_PER_RUN * len(runs))
    axes: dict[tuple[float, ...], int] = {}
    curves = [_encoded(each, limit, axes) for each in series]
    names = dict.fromkeys(name for each in series for name in each.y)
    return {
        "metrics": {name: METRIC_LABELS.get(name, metric_in_words(name)) for name in _in_order(names)},
        "curves": curves,
        "xs": list(map(list, axes)),
        "curvePoints": min(limit, longest),
        "curvesAreThinned": limit < longest,
    }


def _in_order(names: Iterable[str]) -> list[str]:
    """The outcomes first, then what was logged, then the times."""
    known = list(names)
    first = [name for name in OUTCOMES if name in known]
    last = [name for name in _TIMES if name in known]
    return [*first, *(name for name in known if name not in (*first, *last)), *last]


def _limit(series: Sequence[_Series], longest: int, max_values: int) -> int:
    """The largest number of points of a curve with which all curves have at most `max_values`, at least two."""
    low, high = 2, max(2, longest)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(each.num_values(middle) for each in series) <= max_values:
            low = middle
        else:
            high = middle - 1
    return low


def _encoded(series: _Series, limit: int, axes: dict[tuple[float, ...], int]) -> dict[str, Any]:
    places = sample_evenly(range(series.num_points), limit)
    return {
        "run": series.place,
        "x": {
            name: axes.setdefault(tuple([_rounded_time(values[place]) for place in places]), len(axes))
            for name, values in series.x.items()
        },
        "y": {name: [_rounded(values[place]) for place in places] for name, values in series.y.items()},
    }


def _series(place: int, run: StoredRun) -> Iterator[_Series]:
    """The metrics of a run's epochs, then those of its program's files, which have steps of their own."""
    metrics = {name: values for name, values in _metrics(run.epochs) if _is_curve(values)}
    if metrics:
        yield _Series(place, dict(_axes(run)), metrics)
    for name, points in metrics_by_step(run.paths, run.record.origins or {}, adopted=run.record.adopted).items():
        if name not in metrics and _is_curve(list(points.values())):
            yield _Series(place, {"step": list(points)}, {name: list(points.values())})


def _is_curve(values: Sequence[float | None]) -> bool:
    return sum(value is not None for value in values) > 1


def _metrics(epochs: Sequence[EpochRecord]) -> Iterator[tuple[str, list[float | None]]]:
    for name in OUTCOMES:
        yield name, [getattr(epoch, name) for epoch in epochs]
    for name in metric_names(epochs):
        yield name, [(epoch.metrics or {}).get(name) for epoch in epochs]
    for name in _TIMES:
        yield name, [getattr(epoch, name) for epoch in epochs]


def _axes(run: StoredRun) -> Iterator[tuple[str, Sequence[float]]]:
    """The axes that the run's records can be drawn over; time and samples count from the run's start."""
    numbers = [epoch.epoch for epoch in run.epochs]
    counted, steps = counted_word(run.record), run.record.measurements.steps_per_epoch
    yield counted, numbers
    if counted == "epoch" and steps:
        yield "step", [number * steps for number in numbers]
    seconds = [epoch.run_seconds for epoch in run.epochs if epoch.run_seconds is not None]
    if len(seconds) == len(numbers):
        yield "seconds", seconds
    if any(epoch.samples for epoch in run.epochs) and all(epoch.known_samples is not None for epoch in run.epochs):
        yield "samples", list(accumulate(epoch.samples for epoch in run.epochs))


def _rounded_time(value: float) -> float:
    """A value of an axis: counts are exact."""
    return value if isinstance(value, int) else float(f"{value:.{_DIGITS + 2}g}")


def _rounded(value: float | None) -> float | None:
    if value is None or not math.isfinite(value) or not is_drawable(value):
        return None
    return float(f"{value:.{_DIGITS}g}")
