"""The list of a sweep's figures, most informative first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from runmanager.records.run.run_record import PHASES
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.comparability import disagreements
from runmanager.results.compare.comparison_table import ComparisonTable
from runmanager.results.compare.matched_pairs import Match, Matches
from runmanager.results.figures.axes import needs_log_scale, set_integer_ticks, set_number_scale
from runmanager.results.figures.figure import (
    GridCell,
    SweepFigure,
    grid_cells,
    join_names,
    numbered_names,
    sample_evenly,
    sample_note,
)
from runmanager.results.figures.learning_curves import learning_curve_figures
from runmanager.results.figures.parallel_coordinates import parallel_figures
from runmanager.results.figures.search_progress import search_figures
from runmanager.results.figures.style import (
    GREY,
    MAX_ROWS,
    PAGE,
    add_legend_below,
    label_text,
    new_figure,
    new_row_figure,
    series_style,
)
from runmanager.results.figures.throughput import speedup_figures, throughput_figures
from runmanager.results.figures.throughput_by_axis import throughput_by_axis_figures
from runmanager.results.figures.trade_off import trade_off_figures
from runmanager.results.findings.crossover import Crossover, crossover_lines
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import mean, quantile
from runmanager.results.stats.paired_speedup import PairedSpeedup, log_ratios_by_session, paired_speedup
from runmanager.results.table_model.columns import Table, setting_name
from runmanager.results.table_model.formatting import number
from runmanager.results.tables.shown_rows import without_shorter_runs
from runmanager.text import format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    return [_figure_of_rounds(name, rounds) for name, rounds in zip(names, found, strict=False)]


def _figure_of_rounds(name: str, found: Rounds) -> SweepFigure:
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
        name,
        f"Rounds of {found.labels[1]} and {found.labels[0]}",
        caption,
        description,
        partial(_draw_rounds, found),
    )


def _draw_rounds(found: Rounds) -> "Figure":
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


_REST = "not measured apart"
_MIN_REST = 0.01  # of the wall time; the phases of an epoch record sum to it within this share
_MIN_REST_OF_MEDIANS = 0.1  # if all phases were measured: their medians need not sum to the median wall time
# Hatches, so that colour is not the only difference between phases.
_HATCHES = dict(zip((*PHASES, _REST), ("", "xx", "//", "||", "\\\\", "--"), strict=True))


@dataclass(frozen=True)
class _Bar:
    """The seconds of an epoch by phase; the time of phases that were not measured is in the rest."""

    label: str
    seconds: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def phase_figures(results: Table) -> list[SweepFigure]:
    """A bar for each finished cell with measured phases, fastest training first."""
    cells = [cell for cell in grid_cells(results) if cell.mean("wall_seconds")]
    cells.sort(key=lambda cell: cell.mean("epoch_seconds") or math.inf)
    bars = [bar for cell in cells if (bar := _bar(cell)) is not None]
    if not bars:
        return []
    shown = sample_evenly(bars, MAX_ROWS)
    in_shares = needs_log_scale(min(bar.total for bar in shown), max(bar.total for bar in shown))
    of_seeds = ", means over seeds" if any(len(cell.rows) > 1 for cell in cells) else ""
    shares = " Bars are shares, as the epochs differ too much in length; the labels give the seconds."
    caption = (
        f"Where an epoch's time goes{sample_note(len(bars), MAX_ROWS)}: medians over measured epochs"
        f"{of_seeds}, fastest training first.{shares if in_shares else ''}{_unmeasured(shown)}"
    )
    draw = partial(_draw_phases, shown, in_shares=in_shares)
    return [SweepFigure("phases", "Phases of an epoch", caption, _describe_phases(bars), draw)]


def _bar(cell: GridCell) -> _Bar | None:
    means = {phase: cell.mean(f"{phase}_seconds") for phase in PHASES}
    seconds = {phase: mean for phase, mean in means.items() if mean is not None}
    wall_seconds = cell.mean("wall_seconds") or 0.0
    rest = wall_seconds - sum(seconds.values())
    min_share = _MIN_REST if len(seconds) < len(PHASES) else _MIN_REST_OF_MEDIANS
    if seconds and rest > min_share * wall_seconds:
        seconds[_REST] = rest
    return _Bar(cell.label, seconds) if sum(seconds.values()) > 0 else None


def _unmeasured(bars: Sequence[_Bar]) -> str:
    missing = {phase: sum(phase not in bar.seconds for bar in bars) for phase in PHASES}
    everywhere = [phase for phase, count in missing.items() if count == len(bars)]
    somewhere = [f"{phase} in {count} of {len(bars)}" for phase, count in missing.items() if 0 < count < len(bars)]
    lines = (
        [f" {join_names(everywhere)} {'was' if len(everywhere) == 1 else 'were'} not measured."] if everywhere else []
    )
    lines += [f" Not measured: {join_names(somewhere)}."] if somewhere else []
    return "".join(lines)


def _describe_phases(bars: Sequence[_Bar]) -> str:
    shortest, longest = (choose(bars, key=lambda bar: bar.total) for choose in (min, max))
    text = f"The shortest epoch, of {shortest.label}, takes {_shares(shortest)}."
    return f"{text} The longest, of {longest.label}, takes {_shares(longest)}." if len(bars) > 1 else text


def _shares(bar: _Bar) -> str:
    parts = [f"{seconds / bar.total:.0%} {phase}" for phase, seconds in bar.seconds.items()]
    return f"{number(bar.total)} seconds: {join_names(parts)}"


def _draw_phases(bars: Sequence[_Bar], *, in_shares: bool) -> "Figure":
    labels = [f"{bar.label} ({number(bar.total)} s)" if in_shares else bar.label for bar in bars]
    figure, axes = new_row_figure(labels)
    lefts = [0.0] * len(bars)
    for index, (phase, hatch) in enumerate(_HATCHES.items()):
        wholes = [bar.total if in_shares else 1.0 for bar in bars]
        widths = [bar.seconds.get(phase, 0.0) / whole for bar, whole in zip(bars, wholes, strict=True)]
        if any(widths):
            axes.barh(
                range(len(bars)),
                widths,
                left=lefts,
                color=GREY if phase == _REST else series_style(index).colour,
                hatch=hatch,
                edgecolor=PAGE,
                linewidth=0.5,
                label=phase,
            )
            lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    set_number_scale(axes, "x")
    axes.set_xlim(0, 1 if in_shares else None)
    axes.set_xlabel("share of an epoch's wall time" if in_shares else "seconds of a median measured epoch")
    add_legend_below(figure, columns=3)
    return figure


def sweep_figures(
    sweep: SweepContents,
    *,
    results: Table,
    comparison: ComparisonTable,
    crossovers: Sequence[Crossover] = (),
    rounds: Sequence[Rounds] = (),
    plan: SweepRecord | None = None,
) -> list[SweepFigure]:
    """The figures with data, each with a unique name; a figure is drawn when it is saved or shown.

    `results` has one row per run, `comparison` one row per matched pair; runs that a longer one continues are left out,
    as in the tables.
    """
    results, comparison = without_shorter_runs(results), without_shorter_runs(comparison)
    runs = {run.record.name: run for run in sweep.runs}
    return [
        *speedup_figures(comparison),
        *round_figures(rounds),
        *_crossover_figures(crossovers),
        *trade_off_figures(sweep, plan),
        *throughput_by_axis_figures(runs, results),
        *throughput_figures(runs, results),
        *phase_figures(results),
        *search_figures(plan, runs, results),
        *learning_curve_figures(runs, results),
        *parallel_figures(results, sweep.runs),
    ]


_MAX_CROSSOVERS = 6


def _crossover_figures(found: Sequence[Crossover]) -> list[SweepFigure]:
    """A figure for each of the first few crossovers whose sides can be told apart."""
    drawable = [crossover for crossover in found if not crossover.is_too_close][:_MAX_CROSSOVERS]
    names = numbered_names("crossover", drawable)
    return [_figure(name, crossover) for name, crossover in zip(names, drawable, strict=True)]


def _figure(name: str, found: Crossover) -> SweepFigure:
    (line,) = crossover_lines([found])
    caption = (
        f"{line} Points are geometric means over runs; a band reaches from the last point where one side is surely "
        "ahead to the first one where the other is."
    )
    return SweepFigure(name, f"Crossover along {found.along}", caption, _description(found), partial(_draw, found))


def _description(found: Crossover) -> str:
    metric = found.metric.replace("_", " ")
    ends = [
        f"{label} goes from {number(values[0])} to {number(values[-1])} {metric}"
        for label, values in zip(found.labels, found.curves, strict=True)
    ]
    return f"From {found.along} {number(found.xs[0])} to {number(found.xs[-1])} {' and '.join(ends)}."


def _draw(found: Crossover) -> "Figure":
    figure, axes = new_figure(height=3.6)
    for index, (label, values) in enumerate(zip(found.labels, found.curves, strict=True)):
        style = series_style(index)
        axes.plot(found.xs, values, marker=style.marker, color=style.colour, label=label_text(label))
    for crossing in found.crossings:
        axes.axvspan(crossing.low, crossing.high, color=GREY, alpha=0.3, linewidth=0)
        axes.axvline(crossing.at, color=GREY, linestyle="dotted")
    set_number_scale(axes, "x", log=True)
    set_number_scale(axes, "y", log=True)
    axes.set_xlabel(label_text(found.along))
    axes.set_ylabel(found.metric.replace("_", " "))
    add_legend_below(figure)
    return figure
