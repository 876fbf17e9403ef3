"""The data of a report's page as one JSON value: the runs by column, curves, compared pairs, details of every run."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec

from runmanager.records.run.measurement import OUTCOMES
from runmanager.records.run.run_record import EpochRecord, counted_word
from runmanager.records.storage.reader import StoredRun
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.verdict import VERDICTS
from runmanager.results.figures.axes import is_drawable
from runmanager.results.figures.figure import grid_cells, sample_evenly, varying_columns
from runmanager.results.figures.learning_curves import METRIC_LABELS, curve_panels
from runmanager.results.figures.style import DASHES, series_style, shades, shades_on_dark
from runmanager.results.figures.throughput import VERDICT_COLOURS, effect_limits, measured_pairs, rate_quartiles
from runmanager.results.findings.outcomes import outcomes
from runmanager.results.load.run_summary import metric_names
from runmanager.results.metrics.metric_lookup import SPEEDS
from runmanager.results.program_files.folder_metrics import metrics_by_step
from runmanager.results.report.run_details import tail
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.table_model.columns import Directions, Row, Table, effect_column
from runmanager.results.table_model.formatting import in_figures, metric_in_words
from runmanager.results.tables.shown_rows import without_shorter_runs
from runmanager.text import format_value, printable, printable_line, printable_value, shell_command

_FORMAT = 1
_NUM_STYLES = 12  # series in colour
_HIDDEN_COLUMNS = ("run", "run_dir")
_OF_SPEED = {metric.name: metric.more_is_better for metric in SPEEDS}
_DIGITS = 5  # of measured values; the tables show four


_MAX_CHARACTERS = 250_000  # of the ends of all logs
_MAX_LOG, _MIN_LOG = 3000, 200  # characters of one
_LOG_LINES = 20


_MIN_VALUES, _VALUES_PER_RUN = 60_000, 140
"""How many values the page may have, so that it stays small: the curves of a small sweep have all."""

_TIMES = ("samples_per_second", "epoch_seconds")
_CURVE_DIGITS = 4  # as the tables show


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
    """Return `metrics` (their labels by name), `panels` of metrics that are drawn together, `curves` and the values of
    their axes, `xs`; each is empty without runs.

    Long curves have at most `curvePoints` points at even steps, the first and the last included; `curvesAreThinned`
    says whether one has more. Values are rounded to what is shown, None where one is missing or too large to draw.
    """
    series = [each for place, run in enumerate(runs) if run is not None for each in _series(place, run)]
    longest = max((each.num_points for each in series), default=0)
    limit = _limit(series, longest, _MIN_VALUES + _VALUES_PER_RUN * len(runs))
    axes: dict[tuple[float, ...], int] = {}
    curves = [_encoded(each, limit, axes) for each in series]
    names = _in_order(dict.fromkeys(name for each in series for name in each.y))
    return {
        "metrics": {name: METRIC_LABELS.get(name, metric_in_words(name)) for name in names},
        "panels": [{"title": panel.title, "names": panel.names} for panel in curve_panels(names)],
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
    return value if isinstance(value, int) else float(f"{value:.{_CURVE_DIGITS + 2}g}")


def _rounded(value: float | None) -> float | None:
    if value is None or not math.isfinite(value) or not is_drawable(value):
        return None
    return float(f"{value:.{_CURVE_DIGITS}g}")


class _Texts:
    """Texts that several runs share, each stored once."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, text: str) -> int:
        return self.places.setdefault(printable(text), len(self.places))


def detail_data(runs: Sequence[StoredRun | None], plan: SweepRecord | None) -> dict[str, Any]:
    """Return the settings that all runs share, the `texts` that runs refer to, and the details of each run.

    A run that has not started has None. The more runs, the less of each log is kept.
    """
    stored = [run for run in runs if run is not None]
    shared = _shared_settings(stored)
    texts = _Texts()
    limit = max(_MIN_LOG, min(_MAX_LOG, _MAX_CHARACTERS // max(1, len(stored))))
    details = [None if run is None else _details(run, shared, texts, limit) for run in runs]
    return {
        "settings": {printable_line(name): text for name, text in shared.items()},
        "texts": list(texts.places),
        "runs": details,
    }


def _shared_settings(runs: Sequence[StoredRun]) -> dict[str, str]:
    """The settings that are equal in all runs."""
    if not runs:
        return {}
    first, *others = (run.record.choices_and_settings for run in runs)
    shared = {name for name, value in first.items() if all(name in each and each[name] == value for each in others)}
    return {name: printable_value(value) for name, value in first.items() if name in shared}


def _details(run: StoredRun, shared: dict[str, str], texts: _Texts, limit: int) -> dict[str, Any]:
    record = run.record
    own = {name: value for name, value in record.choices_and_settings.items() if name not in shared}
    command = record.cell_command or record.environment.command
    return {
        "folder": printable(run.folder),
        "message": printable(record.message),
        "settings": {printable_line(name): printable_value(value) for name, value in own.items()},
        "said": [texts.place(text) for text in (*record.deviations, *record.notes)],
        "command": texts.place(shell_command(command)) if command else None,
        "log": _end(run.paths.log, limit),
        "error": _end(run.paths.error, limit),
    }


def _end(path: Any, limit: int) -> str:
    """The last whole lines of a file, at most `limit` characters; empty if it does not exist."""
    lines = tail(path, max_bytes=4 * limit)[-_LOG_LINES:]
    text = printable("\n".join(lines))
    return text if len(text) <= limit else "…" + text[-limit:]


def page_data(snapshot: SweepSnapshot) -> dict[str, Any]:
    """Return what the page's script draws. Runs are named by their place in `runs`, the order of results.csv.

    - `columns`, the most important first: the runs' `values`, whether all are `numbers`, whether it is a `setting`, and
      its `label` where that is not its name. `varying` are settings that differ, `outcome` is the column that ranks,
      `better` has `max` or `min` by metric and column.
    - `cells`: their `labels`, and `ofRun`, the cell of each run; runs of a cell differ only in the seed.
    - `metrics` are labels by name; `panels` are metrics that share a chart, with its `title`. `curves` have for each
      `run` its `y` by metric, and by axis (`epoch`, `step`, `seconds`, `samples`) the place of its `x` in `xs`. `rates`
      are the quartiles of each run's samples per second.
    - `pairs`: the comparison's `rows` with `value`, `low`, `high`, `verdict`, `tolerance` and the `runs` of both sides.
    - `details`: shared `settings` and `texts`; of each run its `settings`, what it `said`, the ends of `log` and
      `error`, its `command`. `styles` are the colours and marks of the static figures.

    A run that a longer one continues is left out, as in tables for people.
    """
    results = without_shorter_runs(snapshot.results)
    places = run_places(results)
    # Names need not be unique: a folder may be a copy with another setting.
    by_folder = {f"{snapshot.sweep.paths.runs.name}/{run.folder}": run for run in snapshot.sweep.runs}
    runs = [by_folder.get(row["run_dir"]) for row in results.rows]
    directions = Directions.of_runs(snapshot.sweep.runs)
    curves = curve_data(runs)
    return {
        "format": _FORMAT,
        "title": printable_line(snapshot.sweep.paths.name),
        "folder": printable_line(str(snapshot.sweep.paths.root)),
        "runs": [printable_line(row["run"]) for row in results.rows],
        "cells": _cells(results),
        "columns": {name: _column(results, name) for name in _columns(results)},
        "varying": varying_columns(results),
        "seeds": [name for name in results.seeds if name in results.shown],
        "outcome": _outcome(results, snapshot.sweep.runs),
        "better": {name: _better(name, directions) for name in (*curves["metrics"], *_columns(results))},
        **curves,
        "rates": [None if run is None else _quartiles(run) for run in runs],
        "pairs": _pairs(snapshot, places),
        "details": detail_data(runs, snapshot.plan),
        "styles": _styles(),
    }


def encode_page_data(data: dict[str, Any]) -> str:
    """Encode the data as JSON that is safe inside of a `<script>` element, and whose texts and names are printable."""
    return msgspec.json.encode(_printable(data)).decode().replace("<", "\\u003c")


def _printable(data: Any) -> Any:
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, dict):
        return {printable_line(name): _printable(value) for name, value in data.items()}
    if isinstance(data, list) and any(isinstance(each, str | dict | list) for each in data):
        return [_printable(each) for each in data]
    return data


def run_places(results: Table) -> dict[str, int]:
    """Return the place of each run in the data, by its name: that of its row, shorter runs left out."""
    return {row["run"]: place for place, row in enumerate(without_shorter_runs(results).rows)}


def pair_runs(snapshot: SweepSnapshot, places: dict[str, int]) -> list[list[int]]:
    """Return the places of the runs of each row of the comparison, those of both sides."""
    return [
        [places[cell.run] for side in match.sides for cell in side.cells if cell.run in places]
        for match in snapshot.matches.pairs
    ]


def _better(name: str, directions: Directions) -> str | None:
    """Whether the largest or the smallest value is best, `max` or `min`; None where that is not known."""
    more_is_better = _OF_SPEED[name] if name in _OF_SPEED else directions.known(name)
    return None if more_is_better is None else "max" if more_is_better else "min"


def _cells(results: Table) -> dict[str, Any]:
    """The labels of the cells, whose runs differ only in the seed, and the cell of each run."""
    cells = grid_cells(results)
    of_row = {id(row): number for number, cell in enumerate(cells) for row in cell.rows}
    return {
        "labels": [printable_line(cell.label) for cell in cells],
        "ofRun": [of_row[id(row)] for row in results.rows],
    }


def _columns(results: Table) -> list[str]:
    """The columns that some run has a value of, without the settings that follow from others."""
    hidden = {*_HIDDEN_COLUMNS, *results.derived}.difference(results.shown)
    named = (name for name in dict.fromkeys((*results.shown, *results.columns)) if name not in hidden)
    return [name for name in named if any(row[name] is not None for row in results.rows)]


def _column(results: Table, name: str) -> dict[str, Any]:
    """A column's values: numbers, or texts as they are typed; None for a missing one."""
    is_setting = name in results.settings
    values = [_value(row, name, is_setting=is_setting) for row in results.rows]
    are_numbers = all(value is None or isinstance(value, int | float) for value in values)
    if not are_numbers:
        values = [value if value is None or isinstance(value, str) else format_value(value) for value in values]
    label = "" if is_setting else in_figures(name, results)
    named = {"label": label} if label not in ("", name) else {}
    return {"numbers": are_numbers, "setting": is_setting, "values": values, **named}


def _value(row: Row, name: str, *, is_setting: bool) -> float | str | None:
    value = row[name]
    if value is None:
        return "null" if is_setting and name not in row.absent_settings else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return printable_value(value)
    if isinstance(value, int):
        return value
    if not math.isfinite(value):
        return None
    return float(value) if is_setting else float(f"{value:.{_DIGITS}g}")


def _outcome(results: Table, runs: Sequence[StoredRun]) -> str | None:
    """The column of the metric that tells the cells apart; None where none was measured."""
    names = (each.name for each in outcomes(results, runs))
    return next((name for name in names if name in results.columns and _is_measured(results, name)), None)


def _is_measured(results: Table, name: str) -> bool:
    return any(row[name] is not None for row in results.rows)


def _quartiles(run: StoredRun) -> list[float] | None:
    rates = rate_quartiles(run)
    return None if rates is None else [float(f"{value:.{_DIGITS}g}") for value in rates]


def _pairs(snapshot: SweepSnapshot, places: dict[str, int]) -> dict[str, Any] | None:
    """The measured pairs of the comparison, largest effect first; None for fewer than two."""
    comparison = snapshot.comparison
    measured, labels, x_label = measured_pairs(comparison)
    if len(measured) < 2:
        return None
    runs = {id(row): of_row for row, of_row in zip(comparison.rows, pair_runs(snapshot, places), strict=True)}
    effect = effect_column(comparison.columns)
    rows = [
        {
            "label": printable_line(label),
            "value": row[effect],
            "low": row["ci_low"],
            "high": row["ci_high"],
            "verdict": row["verdict"],
            "tolerance": row.effect.tolerance if row.effect else 0.0,
            "runs": runs[id(row)],
        }
        for row, label in zip(measured, labels, strict=True)
    ]
    return {"effect": effect, "label": printable_line(x_label), "limits": effect_limits(measured), "rows": rows}


def _styles() -> dict[str, Any]:
    """The colours and marks of the static figures."""
    styles = [series_style(index) for index in range(_NUM_STYLES)]
    return {
        "dashes": DASHES,
        "series": [{"colour": style.colour, "marker": style.marker, "dash": style.dash} for style in styles],
        "verdicts": {
            verdict: {"colour": VERDICT_COLOURS[verdict], "marker": look.mark, "isHollow": look.is_hollow}
            for verdict, look in VERDICTS.items()
        },
        "shades": shades(),
        "shadesOnDark": shades_on_dark(),
    }
