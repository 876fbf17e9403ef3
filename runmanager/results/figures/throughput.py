"""The figure of throughput by run: medians of measured epochs with quartiles, the runs of a cell in one row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runmanager.records.storage.reader import StoredRun
from runmanager.results.figures.axes import needs_log_scale, set_number_scale
from runmanager.results.figures.figure import GridCell, SweepFigure, grid_cells, sample_evenly, top_note
from runmanager.results.figures.style import MAX_ROWS, add_legend_below, label_text, new_row_figure, series_style
from runmanager.results.stats.descriptive import mean, quantile
from runmanager.results.table_model.columns import Table
from runmanager.results.table_model.formatting import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["rate_quartiles", "throughput_figures"]

_MAX_SEEDS = 10  # dots per row
_SEED_SPREAD = 0.5  # of a row's height

_Quartiles = tuple[float, float, float]


@dataclass(frozen=True)
class _Row:
    """The quartiles of samples per second of each run of a cell, fastest first."""

    label: str
    device: str
    runs: Sequence[_Quartiles]

    @property
    def mean(self) -> float:
        """The mean of the runs' medians; the best seed would be too optimistic."""
        return mean([middle for _, middle, _ in self.runs])

    def dots(self, y: int) -> Iterator[tuple[float, _Quartiles]]:
        """The y position of each run, spread around the row's middle `y`, with its quartiles."""
        runs = sample_evenly(self.runs, _MAX_SEEDS)
        for index, quartiles in enumerate(runs):
            yield y + _SEED_SPREAD * ((index + 0.5) / len(runs) - 0.5), quartiles


def throughput_figures(runs: Mapping[str, StoredRun], results: Table) -> list[SweepFigure]:
    """A dot for each measured run, in rows of cells sorted by mean; only the fastest of many cells are shown."""
    rows = [row for cell in grid_cells(results) if (row := _row(cell, runs)) is not None]
    if not rows:
        return []
    rows.sort(key=lambda row: -row.mean)
    num_runs = sum(len(row.runs) for row in rows)
    seeds = ", seeds in one row" if num_runs > len(rows) else ""
    top = top_note(len(rows), MAX_ROWS, "fastest" if num_runs == len(rows) else "fastest cells")
    caption = (
        f"Throughput of each run{top}: the median of its measured epochs, with whiskers to their quartiles{seeds}."
    )
    return [
        SweepFigure(
            "throughput", "Throughput of each run", caption, _description(rows), partial(_draw, rows[:MAX_ROWS])
        )
    ]


def _row(cell: GridCell, runs: Mapping[str, StoredRun]) -> _Row | None:
    measured = [row for row in cell.rows if row["samples_per_second"] is not None]
    known = [found for row in measured if (found := rate_quartiles(runs[row["run"]])) is not None]
    quartiles = sorted(known, key=lambda each: -each[1])
    return _Row(cell.label, str(cell.value("device")), quartiles) if quartiles else None


def rate_quartiles(run: StoredRun) -> _Quartiles | None:
    """Return the quartiles of a run's samples per second over its measured epochs; None without any."""
    rates = sorted(rate for epoch in run.epochs if not epoch.warmup and (rate := epoch.samples_per_second))
    return (quantile(rates, 0.25), quantile(rates, 0.5), quantile(rates, 0.75)) if rates else None


def _description(rows: Sequence[_Row]) -> str:
    first, last = rows[0], rows[-1]
    means = ", the mean of its seeds" if len(first.runs) > 1 else ""
    fastest = f"The fastest is {first.label}, at {number(first.mean)} samples per second{means}"
    slowest = f"; the slowest of {len(rows)} is {last.label}, at {number(last.mean)}"
    return fastest + (slowest if len(rows) > 1 else "") + "."


def _draw(rows: Sequence[_Row]) -> "Figure":
    figure, axes = new_row_figure([row.label for row in rows])
    devices = list(dict.fromkeys(row.device for row in rows))
    for index, device in enumerate(devices):
        style = series_style(index)
        dots = [dot for y, row in enumerate(rows) if row.device == device for dot in row.dots(y)]
        ys, quartiles = zip(*dots, strict=True)
        lows, middles, highs = zip(*quartiles, strict=True)
        whiskers = [
            [middle - low for low, middle in zip(lows, middles, strict=True)],
            [high - middle for middle, high in zip(middles, highs, strict=True)],
        ]
        axes.errorbar(middles, ys, xerr=whiskers, fmt="none", ecolor=style.colour, capsize=2)
        axes.plot(middles, ys, style.marker, color=style.colour, markersize=5, label=label_text(device))
    slowest, fastest = min(row.runs[-1][1] for row in rows), max(row.runs[0][1] for row in rows)
    is_log = needs_log_scale(slowest, fastest)
    if not is_log:
        axes.set_xlim(0, 1.04 * max(quartiles[2] for row in rows for quartiles in row.runs))
    set_number_scale(axes, "x", log=is_log)
    axes.set_xlabel("samples per second")
    if len(devices) > 1:
        add_legend_below(figure)
    return figure
