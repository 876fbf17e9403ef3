"""Learning curves: a metric of each run by epoch, the best in colour before the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runmanager.records.store import StoredRun
from runmanager.results.columns import Table
from runmanager.results.figures.drawn import Drawn
from runmanager.results.figures.style import COLOURS, DASHES, GREY, legend_below, new_figure, whole_numbers
from runmanager.results.figures.words import extra_inches, few_of, number, row_label, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["learning_curves"]

_MAX_CURVES = 12
_MAX_MARKED = 100  # points of a curve: the marks of more would run together, and take megabytes
_METRICS = (
    ("val_accuracy", "validation accuracy (fraction)"),
    ("accuracy", "training accuracy (fraction)"),
    ("val_loss", "validation loss"),
    ("loss", "training loss"),
)


@dataclass(frozen=True)
class _Curve:
    """A metric of a run by epoch."""

    label: str
    epochs: Sequence[int]
    values: Sequence[float]


def learning_curves(runs: Mapping[str, StoredRun], results: Table) -> list[Drawn]:
    """The curves of the first metric that some run has at two epochs; none where none has."""
    labels = {row["run"]: row_label(row, results) for row in results.rows}
    for metric, words in _METRICS:
        curves = _curves(runs, labels, metric)
        if any(len(curve.epochs) > 1 for curve in curves):
            shown = few_of(len(curves), _MAX_CURVES, "best", "in colour")
            caption = f"Learning curves: {words} by epoch{shown}."
            best = curves[0]
            said = f"The best ends at {number(best.values[-1])} after epoch {best.epochs[-1]}: {best.label}."
            return [Drawn("curves", "Learning curves", caption, said, partial(_draw, curves, words))]
    return []


def _curves(runs: Mapping[str, StoredRun], labels: Mapping[str, str], metric: str) -> list[_Curve]:
    """The curves of a metric, the best end first; runs that have none of it left out."""
    curves = []
    for name, run in runs.items():
        points = [(epoch.epoch, value) for epoch in run.epochs if (value := getattr(epoch, metric)) is not None]
        if points:
            epochs, values = zip(*points, strict=True)
            curves.append(_Curve(labels[name], epochs, values))
    curves.sort(key=lambda curve: curve.values[-1], reverse=metric.endswith("accuracy"))
    return curves


def _draw(curves: Sequence[_Curve], metric: str) -> "Figure":
    labels = [wrapped(curve.label) for curve in curves[:_MAX_CURVES]]
    figure, axes = new_figure(height=3.4 + (0.2 + extra_inches(labels)) * (len(labels) + 1) // 2)
    for curve in curves[_MAX_CURVES:]:
        axes.plot(curve.epochs, curve.values, color=GREY, alpha=0.35, linewidth=0.8)
    for at, (curve, label) in enumerate(zip(curves, labels, strict=False)):
        marker = "o" if len(curve.epochs) <= _MAX_MARKED else None
        (line,) = axes.plot(curve.epochs, curve.values, marker=marker, markersize=3, label=label)
        line.set(color=COLOURS[at % len(COLOURS)], linestyle=DASHES[at // len(COLOURS)])
    whole_numbers(axes)
    axes.set_xlabel("epoch")
    axes.set_ylabel(metric)
    legend_below(figure)
    return figure
