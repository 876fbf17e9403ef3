"""The figure of paired runs: the ratio in each round, and the speedup estimated from all rounds."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from runmanager.results.figures.axes import set_integer_ticks, set_number_scale
from runmanager.results.figures.figure import SweepFigure, numbered_names
from runmanager.results.figures.style import GREY, label_text, new_figure, series_style
from runmanager.results.findings.paired_rounds import Rounds
from runmanager.results.stats.descriptive import quantile
from runmanager.results.table_model.columns import setting_name
from runmanager.results.table_model.formatting import number
from runmanager.text import format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["round_figures"]

_MAX_FIGURES = 6


def round_figures(found: Sequence[Rounds]) -> list[SweepFigure]:
    """A figure for each of the first few pairs."""
    names = numbered_names("rounds", found[:_MAX_FIGURES])
    return [_figure(name, rounds) for name, rounds in zip(names, found, strict=False)]


def _figure(name: str, found: Rounds) -> SweepFigure:
    where = ", ".join(f"{setting_name(name)}={format_value(value)}" for name, value in found.settings.items())
    per_ratio = (
        "each round" if found.count == len(found.ratios) else f"{found.count // len(found.ratios)} rounds at a time"
    )
    sides = f"{found.labels[1]} and {found.labels[0]}{f' at {where}' if where else ''}"
    caption = (
        f"{sides}: the ratio of their samples per second in {per_ratio}, {found.count} rounds in order. The line is "
        "the speedup, the band its 95% interval; triangles at the frame are rounds beyond it."
        + (" At each thin vertical line new processes took over." if found.restarts else "")
    )
    estimate = found.estimate
    description = (
        f"The ratios reach from {number(min(found.ratios))} to {number(max(found.ratios))}; the speedup is "
        f"{estimate.value:.4g}, its 95% interval {estimate.low:.4g} to {estimate.high:.4g}."
    )
    return SweepFigure(
        name, f"Rounds of {found.labels[1]} and {found.labels[0]}", caption, description, partial(_draw, found)
    )


def _draw(found: Rounds) -> "Figure":
    figure, axes = new_figure(height=3.0)
    low, high = _y_limits(found)
    xs = [(index + 0.5) * found.count / len(found.ratios) + 0.5 for index in range(len(found.ratios))]
    axes.axhspan(found.estimate.low, found.estimate.high, color=GREY, alpha=0.3, linewidth=0)
    axes.axhline(found.estimate.value, color=series_style(0).colour)
    axes.axhline(1.0, color=GREY, linestyle="dotted")
    for last in found.restarts:
        axes.axvline(last + 0.5, color=GREY, linewidth=0.5)
    dots_by_marker: dict[str, list[tuple[float, float]]] = {}
    for x, ratio in zip(xs, found.ratios, strict=True):
        marker = "v" if ratio < low else "^" if ratio > high else "o"
        dots_by_marker.setdefault(marker, []).append((x, min(max(ratio, low), high)))
    for marker, dots in dots_by_marker.items():
        axes.plot(*zip(*dots, strict=True), marker, color=series_style(0).colour, markersize=3, clip_on=False)
    axes.set_ylim(low, high)
    set_integer_ticks(axes)
    set_number_scale(axes, "y")
    axes.set_xlabel("round")
    axes.set_ylabel(label_text(f"{found.labels[1]} / {found.labels[0]}"))
    return figure


def _y_limits(found: Rounds) -> tuple[float, float]:
    """Limits that contain the interval and all rounds within three interquartile ranges of the quartiles."""
    ordered = sorted(found.ratios)
    first, last = quantile(ordered, 0.25), quantile(ordered, 0.75)
    reach = 3 * (last - first)
    inner = [ratio for ratio in ordered if first - reach <= ratio <= last + reach]
    low, high = min(inner[0], found.estimate.low), max(inner[-1], found.estimate.high)
    margin = 0.08 * (high - low) or 0.01 * high
    return low - margin, high + margin
