"""The figures of a report's page: short captions, where the method is told, and figures that only a script draws."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.results.figures.figure import SweepFigure, inline_svg

__all__ = ["FigureView", "figure_views"]

_FIRST_SENTENCE = re.compile(r"(?<=[.)]) (?=[A-Z])")
_BY_SPEED = ("speedups", "rounds", "crossover", "throughput", "phases", "curves", "parallel", "scatter")
_BY_QUALITY = ("curves", "parallel", "scatter", "speedups", "rounds", "crossover", "throughput", "phases")
_INTERACTIVE = {
    "curves": (
        "On the screen, any recorded metric can be drawn, over epochs, steps, time or samples. A group's line is the "
        "mean over its finished runs, its band their range, over the points that all of them have; where their points "
        "differ, as over time, straight lines between points are averaged. Curves rank by their last value. Time "
        "includes everything since the run's start, samples count those of training."
    ),
    "parallel": "On the screen, lines through one value are not spread, and the means are those of the selected runs.",
    "scatter": (
        "Each dot is a run. Times and throughput are medians over its measured epochs, as in the results; a metric is "
        "the one in the results."
    ),
    "speedups": "On the screen, the pairs are those with a selected run.",
    "throughput": "On the screen, the cells are those with a selected run.",
}
_DRAWN_ONLY_BY_SCRIPT = {
    "curves": ("Learning curves", "Learning curves of the metrics that the runs recorded."),
    "scatter": ("The runs by two columns", "Each dot is a run, by any two columns of the results."),
}


@dataclass(frozen=True)
class FigureView:
    """A figure on the page. `svg` is empty for one that only the page's script draws."""

    name: str
    title: str
    caption: str
    description: str
    method: str
    svg: str


def figure_views(figures: Sequence[SweepFigure], data: Mapping[str, Any], *, is_of_speed: bool) -> list[FigureView]:
    """Return the sweep's figures in the order of the reader's question, with those that only a script draws.

    `is_of_speed`: devices are compared, so speedups come first; else quality is asked, and curves do. `data` is the
    page's data.
    """
    views = [_drawn(figure) for figure in figures]
    names = {view.name for view in views}
    if data["curves"] and "curves" not in names:
        views.append(_undrawn("curves"))
    if len(data["runs"]) > 1:
        views.append(_undrawn("scatter"))
    order = _BY_SPEED if is_of_speed else _BY_QUALITY
    return sorted(views, key=lambda view: _rank(view.name, order))


def _rank(name: str, order: Sequence[str]) -> int:
    """The place of a figure's kind: that of `rounds` for `rounds-2`, of `throughput` for `throughput-by-lr`."""
    return next((place for place, kind in enumerate(order) if re.match(rf"{kind}\b", name)), len(order))


def _drawn(figure: SweepFigure) -> FigureView:
    caption, *details = _FIRST_SENTENCE.split(figure.caption, maxsplit=1)
    method = " ".join([*details, *filter(None, [_INTERACTIVE.get(figure.name)])])
    return FigureView(figure.name, figure.title, caption, figure.description, method, inline_svg(figure))


def _undrawn(name: str) -> FigureView:
    title, caption = _DRAWN_ONLY_BY_SCRIPT[name]
    return FigureView(name, title, caption, "", _INTERACTIVE[name], "")
