"""The figure of an epoch's phases: where the wall time of each cell goes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runmanager.records.run.run_record import PHASES
from runmanager.results.figures.axes import needs_log_scale, set_number_scale
from runmanager.results.figures.figure import GridCell, SweepFigure, grid_cells, join_names, sample_evenly, sample_note
from runmanager.results.figures.style import GREY, MAX_ROWS, PAGE, add_legend_below, new_row_figure, series_style
from runmanager.results.table_model.columns import Table
from runmanager.results.table_model.formatting import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["phase_figures"]

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
    draw = partial(_draw, shown, in_shares=in_shares)
    return [SweepFigure("phases", "Phases of an epoch", caption, _description(bars), draw)]


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


def _description(bars: Sequence[_Bar]) -> str:
    shortest, longest = (choose(bars, key=lambda bar: bar.total) for choose in (min, max))
    text = f"The shortest epoch, of {shortest.label}, takes {_shares(shortest)}."
    return f"{text} The longest, of {longest.label}, takes {_shares(longest)}." if len(bars) > 1 else text


def _shares(bar: _Bar) -> str:
    parts = [f"{seconds / bar.total:.0%} {phase}" for phase, seconds in bar.seconds.items()]
    return f"{number(bar.total)} seconds: {join_names(parts)}"


def _draw(bars: Sequence[_Bar], *, in_shares: bool) -> "Figure":
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
