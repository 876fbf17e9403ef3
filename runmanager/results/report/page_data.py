"""The data of a report's interactive figures as one JSON value: the runs by column, curves, compared pairs, details."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from runmanager.records.storage.reader import StoredRun
from runmanager.results.figures.cell_grid import grid_cells, varying_columns
from runmanager.results.figures.speedups import VERDICT_MARKS, effect_limits, measured_pairs
from runmanager.results.figures.style import series_style, shades, shades_on_dark
from runmanager.results.figures.throughput import rate_quartiles
from runmanager.results.findings.outcomes import outcomes
from runmanager.results.metrics.metric_lookup import SPEEDS
from runmanager.results.report.curve_data import curve_data
from runmanager.results.report.detail_data import detail_data
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.table_model.columns import Row, Table, effect_column
from runmanager.results.table_model.directions import Directions
from runmanager.results.table_model.headings import in_figures
from runmanager.results.tables.omitted_rows import without_shorter_runs
from runmanager.text import format_value, printable, printable_line, printable_value

__all__ = ["encode_page_data", "page_data", "pair_runs", "run_places"]

_FORMAT = 1
_NUM_STYLES = 12  # series in colour
_HIDDEN_COLUMNS = ("run", "run_dir")
_OF_SPEED = {metric.name: metric.more_is_better for metric in SPEEDS}
_DIGITS = 5  # of measured values; the tables show four


def page_data(snapshot: SweepSnapshot) -> dict[str, Any]:
    """Return what the page's script draws (docs/architecture.md names each part); runs are named by their place.

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
        "series": [{"colour": style.colour, "marker": style.marker, "dash": style.dash} for style in styles],
        "verdicts": {verdict: {"colour": colour, "marker": mark} for verdict, (colour, mark) in VERDICT_MARKS.items()},
        "shades": shades(),
        "shadesOnDark": shades_on_dark(),
    }
