"""The rounds of pairs that were measured side by side, and their figure: the ratio in each round, and the estimate."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from runmanager.results.compare.comparability import disagreements
from runmanager.results.compare.matched_pairs import Match, Matches
from runmanager.results.figures.axes import set_integer_ticks, set_number_scale
from runmanager.results.figures.figure import SweepFigure, numbered_names
from runmanager.results.figures.style import GREY, label_text, new_figure, series_style
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import mean, quantile
from runmanager.results.stats.paired_speedup import PairedSpeedup, log_ratios_by_session, paired_speedup
from runmanager.results.table_model.columns import setting_name
from runmanager.results.table_model.formatting import number
from runmanager.text import format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Rounds", "paired_rounds", "round_figures"]


_MAX_DRAWN = 200


@dataclass(frozen=True)
class Rounds:
    """The ratios of a pair, round by round, with the estimate from all rounds.

    Each of `ratios` is candidate / baseline; of more than 200 rounds, the geometric mean of several consecutive ones.
    `count` is the number of rounds, `restarts` the numbers of rounds after which new processes took over. `labels` are
    the names of the sides, baseline first; `settings` distinguish this pair from others.
    """

    labels: tuple[str, str]
    settings: Mapping[str, Any]
    ratios: Sequence[float]
    count: int
    restarts: Sequence[int]
    estimate: PairedSpeedup


def paired_rounds(matches: Matches) -> list[Rounds]:
    """Return the rounds of each pair that has an estimate by them."""
    if matches.metric != THROUGHPUT:
        return []
    found = [_rounds(match, matches) for match in matches.pairs if all(side.in_turns for side in match.sides)]
    return [each for each in found if each is not None]


def _rounds(match: Match, matches: Matches) -> Rounds | None:
    baseline, candidate = match.sides
    sessions = log_ratios_by_session(baseline.finished, candidate.finished)
    estimate = paired_speedup(sessions)
    if estimate is None or disagreements(match.sides):
        return None
    settings = {name: value for name, value in match.settings.items() if name in matches.cells.varying}
    ratios = [ratio for session in sessions for ratio in session]
    drawn = [math.exp(ratio) for ratio in _batch_means(ratios)]
    restarts = list(accumulate(map(len, sessions)))[:-1]
    return Rounds((baseline.label, candidate.label), settings, drawn, len(ratios), restarts, estimate)


def _batch_means(values: Sequence[float]) -> list[float]:
    """Return at most 200 means of equally many consecutive values; an incomplete last batch is left out."""
    length = math.ceil(len(values) / _MAX_DRAWN)
    whole = len(values) // length * length
    return [mean(values[at : at + length]) for at in range(0, whole, length)]


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
