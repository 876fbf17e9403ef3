"""The figures of throughput by run, and of speedups along an axis."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable, label_of
from runmanager.results.compare.verdict import VERDICTS
from runmanager.results.figures.axes import needs_log_scale, set_number_scale
from runmanager.results.figures.figure import GridCell, SweepFigure, grid_cells, sample_evenly, sample_note, top_note
from runmanager.results.figures.style import (
    GREY,
    MAX_ROWS,
    add_legend_below,
    label_text,
    new_row_figure,
    series_style,
    wrapped,
)
from runmanager.results.findings.comparison_findings import named_settings
from runmanager.results.stats.descriptive import mean, quantile
from runmanager.results.table_model.columns import Table, effect_column
from runmanager.results.table_model.formatting import number
from runmanager.text import pluralize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


_LABEL_CHARACTERS = 40  # of the x label, as the row labels make the frame narrow
_MAX_REACH = 10.0  # of a ratio's interval, in times the outermost ratios: few runs give limits that hide all others

VERDICT_COLOURS = {
    verdict: GREY if look.colour is None else series_style(look.colour).colour for verdict, look in VERDICTS.items()
}


def speedup_figures(comparison: ComparisonTable) -> list[SweepFigure]:
    """A row for each measured pair, largest effect first; an even sample of many, and no figure for fewer than two."""
    measured, all_labels, _ = measured_pairs(comparison)
    if len(measured) < 2:
        return []
    effect = effect_column(comparison.columns)
    shown, labels = sample_evenly(measured, MAX_ROWS), sample_evenly(all_labels, MAX_ROWS)
    others = len(comparison.rows) - len(measured)
    unmeasured = f" {pluralize(others, 'pair')} could not be measured." if others else ""
    condition = _condition_of_difference([bool(row.effect and row.effect.tolerance) for row in shown])
    caption = (
        f"The {effect} of each pair{sample_note(len(measured), MAX_ROWS)} with its 95% interval. A "
        f"difference is reported if the whole interval lies {condition}.{unmeasured}"
        f"{' Intervals that reach the frame go on beyond it.' if _exceeds_limits(shown) else ''}"
    )
    title = f"{effect.capitalize()} of each pair"
    return [
        SweepFigure(
            "speedups",
            title,
            caption,
            _describe_speedups(shown, labels, measured),
            partial(_draw_speedups, shown, labels),
        )
    ]


def measured_pairs(comparison: ComparisonTable) -> tuple[list[ComparisonRow], list[str], str]:
    """Return the measured pairs, largest effect first, a label for each, and the label of their axis."""
    measured = [row for row in comparison.rows if row.effect is not None]
    if not measured:
        return [], [], ""
    effect = effect_column(comparison.columns)
    measured.sort(key=lambda row: -float(row[effect]))
    have_same_sides = len(set(map(_sides, measured))) == 1
    labels = [_label(row, comparison, with_sides=not have_same_sides) for row in measured]
    return measured, labels, _axis_label(measured)


def effect_limits(rows: Sequence[ComparisonRow]) -> tuple[float, float]:
    """The smallest and the largest value to draw of these pairs: of a ratio, no more than its widest intervals need."""
    ends = [row[end] for row in rows for end in ("ci_low", "ci_high")]
    effect = rows[0].metric.effect
    values = [row[effect] for row in rows]
    low, high = min(ends), max(ends)
    if effect == "difference":
        return low, high
    return max(low, min(1.0, *values) / _MAX_REACH), min(high, max(1.0, *values) * _MAX_REACH)


def _exceeds_limits(rows: Sequence[ComparisonRow]) -> bool:
    low, high = effect_limits(rows)
    return any(row["ci_low"] < low or row["ci_high"] > high for row in rows)


def _axis_label(rows: Sequence[ComparisonRow]) -> str:
    effect, of = rows[0].metric.effect, rows[0].metric.name
    all_sides = set(map(_sides, rows))
    candidate, baseline = all_sides.pop() if len(all_sides) == 1 else ("candidate", "baseline")
    by = "-" if effect == "difference" else "/"
    return f"{effect}: {candidate} {by} {baseline}, {of.replace('_', ' ')}"


def _condition_of_difference(bands: Sequence[bool]) -> str:
    """Where an interval must lie; `bands` says for each pair whether it has a no-difference band."""
    if all(bands):
        return "outside the grey band"
    return (
        "outside the grey band, or on one side of the line without a band" if any(bands) else "on one side of the line"
    )


def _label(row: ComparisonRow, comparison: ComparisonTable, *, with_sides: bool) -> str:
    """What distinguishes a pair from the others: its settings, and its sides if `with_sides`."""
    settings = named_settings(row, comparison)
    if settings and not with_sides:
        return settings
    candidate, baseline = _sides(row)
    return f"{candidate} / {baseline}{f' at {settings}' if settings else ''}"


def _sides(row: ComparisonRow) -> tuple[str, str]:
    return label_of(row["axis"], row["candidate"]), label_of(row["axis"], row["baseline"])


def _describe_speedups(shown: Sequence[ComparisonRow], labels: Sequence[str], measured: Sequence[ComparisonRow]) -> str:
    counts = Counter(row["verdict"] for row in measured)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    ends = [f"{labels[at]}: {_interval(shown[at])}" for at in (0, -1)]
    return f"Of {len(measured)} pairs: {verdicts}. The largest is of {ends[0]}; the smallest is of {ends[1]}."


def _interval(row: ComparisonRow) -> str:
    return f"{number(row[row.metric.effect])}, 95% interval {number(row['ci_low'])} to {number(row['ci_high'])}"


def _draw_speedups(rows: Sequence[ComparisonRow], labels: Sequence[str]) -> "Figure":
    figure, axes = new_row_figure(labels)
    effect = rows[0].metric.effect
    is_difference = effect == "difference"
    no_effect = 0.0 if is_difference else 1.0
    axes.axvline(no_effect, color=GREY, linewidth=1.0)
    for at, row in enumerate(rows):
        if row.effect is not None and (reach := row.effect.tolerance):
            axes.barh(at, 2 * reach, left=no_effect - reach, height=1.0, color=GREY, alpha=0.25, linewidth=0)
    for verdict in VERDICTS:
        _draw_verdict(axes, rows, verdict)
    if _exceeds_limits(rows):
        axes.set_xlim(*effect_limits(rows))
    set_number_scale(axes, "x", log=not is_difference)
    axes.set_xlabel(wrapped(_axis_label(rows), _LABEL_CHARACTERS))
    add_legend_below(figure, columns=3)
    return figure


def _draw_verdict(axes: "Axes", rows: Sequence[ComparisonRow], verdict: str) -> None:
    """Draw the pairs of one verdict together, so that the legend has it once."""
    at = [place for place, row in enumerate(rows) if row["verdict"] == verdict]
    if at:
        values = [rows[place][rows[0].metric.effect] for place in at]
        below = [max(0.0, value - rows[place]["ci_low"]) for place, value in zip(at, values, strict=True)]
        above = [max(0.0, rows[place]["ci_high"] - value) for place, value in zip(at, values, strict=True)]
        look, colour = VERDICTS[verdict], VERDICT_COLOURS[verdict]
        drawn = axes.errorbar(values, at, xerr=[below, above], fmt=look.mark, color=colour, capsize=3, label=verdict)
        if look.is_hollow:
            drawn.lines[0].set_markerfacecolor("none")
