"""Throughput, run by run: the median of a run's measured epochs, with its quartiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runmanager.records.store import StoredRun
from runmanager.results.columns import Table
from runmanager.results.figures.drawn import Drawn
from runmanager.results.figures.style import COLOURS, MARKERS, legend_below, log_worth_it, new_figure, numbers
from runmanager.results.figures.words import extra_inches, few_of, number, plain, row_label, wrapped
from runmanager.results.statistics import quantile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["throughput_figure"]

_MAX_DOTS = 40
_ROW_INCHES = 0.26


@dataclass(frozen=True)
class _Measured:
    """The quartiles of a run's samples a second; runs of one `group` share a colour and a mark."""

    label: str
    group: str
    quartiles: tuple[float, float, float]


def throughput_figure(runs: Mapping[str, StoredRun], results: Table) -> list[Drawn]:
    """A dot for each run that was measured, the fastest first, of many the fastest ones; none where none was."""
    rows = [row for row in results.rows if row["samples_per_second"] is not None]
    rows.sort(key=lambda row: -row["samples_per_second"])
    measured = [
        _Measured(row_label(row, results), str(row["device"]), _quartiles(runs[row["run"]])) for row in rows[:_MAX_DOTS]
    ]
    if not measured:
        return []
    caption = (
        f"Throughput of each run{few_of(len(rows), _MAX_DOTS, 'fastest')}: the median of its measured epochs, with "
        "whiskers to their quartiles."
    )
    return [Drawn("throughput", "Throughput of each run", caption, _said(measured), partial(_draw, measured))]


def _quartiles(run: StoredRun) -> tuple[float, float, float]:
    rates = sorted(rate for epoch in run.epochs if not epoch.warmup and (rate := epoch.samples_per_second) is not None)
    first, middle, third = (quantile(rates, share) for share in (0.25, 0.5, 0.75))
    return first, middle, third


def _said(measured: Sequence[_Measured]) -> str:
    first, last = measured[0], measured[-1]
    said = f"The fastest is {first.label}, at {number(first.quartiles[1])} samples per second"
    slowest = f"; the slowest of the {len(measured)} shown is {last.label}, at {number(last.quartiles[1])}"
    return said + (slowest if len(measured) > 1 else "") + "."


def _draw(measured: Sequence[_Measured]) -> "Figure":
    labels = [wrapped(each.label) for each in measured]
    figure, axes = new_figure(height=1.0 + len(measured) * (_ROW_INCHES + extra_inches(labels)))
    groups = list(dict.fromkeys(each.group for each in measured))
    for place, group in enumerate(groups):
        rows = [at for at, each in enumerate(measured) if each.group == group]
        lows, medians, highs = zip(*(measured[at].quartiles for at in rows), strict=True)
        whiskers = [
            [middle - low for low, middle in zip(lows, medians, strict=True)],
            [high - middle for middle, high in zip(medians, highs, strict=True)],
        ]
        axes.errorbar(
            medians,
            rows,
            xerr=whiskers,
            fmt=MARKERS[place % len(MARKERS)],
            color=COLOURS[place % len(COLOURS)],
            capsize=3,
            label=plain(group),
        )
    axes.set_yticks(range(len(measured)), labels)
    axes.set_ylim(len(measured) - 0.5, -0.5)
    middles = [each.quartiles[1] for each in measured]
    is_log = log_worth_it(min(middles), max(middles))
    if not is_log:
        axes.set_xlim(0, 1.04 * max(each.quartiles[2] for each in measured))
    numbers(axes, "x", log=is_log)
    axes.set_xlabel("samples per second")
    if len(groups) > 1:
        legend_below(figure)
    return figure
