"""The figures of the report, as SVG that stands inside a page and takes its text colour."""

import io
import re
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runmanager.results.statistics import median, quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from runmanager.results.crossover import Crossover
    from runmanager.results.rounds import Rounds

__all__ = [
    *("MAX_CURVES", "MAX_DOTS", "Curve", "Measured"),
    *("crossover_figure", "learning_curves", "rounds_figure", "throughput_figure"),
]

# Okabe and Ito's palette, told apart by colour-blind readers; without its black and its yellow, which are lost on a
# dark or a light page.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
_DASHES = ("solid", "dashed", "dotted")
_TEXT = "#010203"  # stands for the page's own text colour until the SVG is cut to be set in
_GREY = "#888888"
_WIDTH_INCHES = 8.0
_LABEL_CHARACTERS = 44  # of a line: less than half the width
_LINE_INCHES = 0.17
_LOG_FROM = 20.0  # times between the slowest and the fastest: above it the slow ones could not be told apart
_MAX_MARKED = 100  # points of a curve: the marks of more would run together, and take megabytes
MAX_DOTS = 40
MAX_CURVES = 12


@dataclass(frozen=True)
class Measured:
    """The throughput of a run: samples a second of each measured epoch; runs of one `group` share a colour."""

    label: str
    group: str
    rates: Sequence[float]


@dataclass(frozen=True)
class Curve:
    """A metric of a run by epoch."""

    label: str
    epochs: Sequence[int]
    values: Sequence[float]


def throughput_figure(runs: Sequence[Measured]) -> str:
    """A dot for each run's median throughput, whiskers to its quartiles; the first `MAX_DOTS` runs, as SVG."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    runs = runs[:MAX_DOTS]
    labels = [_wrapped(run.label) for run in runs]
    figure, axes = _figure(height=1.1 + len(runs) * (0.26 + _more_inches(labels)))
    groups = list(dict.fromkeys(run.group for run in runs))
    medians = [median(run.rates) or 0.0 for run in runs]
    for group in groups:
        rows = [at for at, run in enumerate(runs) if run.group == group]
        quartiles = [[quantile(sorted(runs[at].rates), share) for at in rows] for share in (0.25, 0.75)]
        whiskers = [
            [max(0.0, medians[at] - low) for at, low in zip(rows, quartiles[0], strict=True)],
            [max(0.0, high - medians[at]) for at, high in zip(rows, quartiles[1], strict=True)],
        ]
        colour = _COLOURS[groups.index(group) % len(_COLOURS)]
        marker = "os^Dv"[groups.index(group) % 5]
        axes.errorbar(
            [medians[at] for at in rows], rows, xerr=whiskers, fmt=marker, color=colour, capsize=3, label=_plain(group)
        )
    axes.set_yticks(range(len(runs)), labels)
    axes.set_ylim(len(runs) - 0.5, -0.5)
    if max(medians) > _LOG_FROM * min(medians):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(0, 1.04 * max(max(run.rates) for run in runs))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.set_xlabel("samples per second")
    return _svg(figure, axes, salt="throughput", legend=len(groups) > 1)


def learning_curves(curves: Sequence[Curve], *, metric: str) -> str:
    """`metric` by epoch, as SVG: the first `MAX_CURVES` curves in colour, the others grey behind them."""
    from matplotlib.ticker import MaxNLocator

    labels = [_wrapped(curve.label) for curve in curves[:MAX_CURVES]]
    figure, axes = _figure(height=4.0 + len(labels) / 2 * _more_inches(labels))
    for curve in curves[MAX_CURVES:]:
        axes.plot(curve.epochs, curve.values, color=_GREY, alpha=0.35, linewidth=0.8)
    for at, (curve, label) in enumerate(zip(curves, labels, strict=False)):
        marker = "o" if len(curve.epochs) <= _MAX_MARKED else None
        (line,) = axes.plot(curve.epochs, curve.values, marker=marker, markersize=3, label=label)
        line.set(color=_COLOURS[at % len(_COLOURS)], linestyle=_DASHES[at // len(_COLOURS)])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel(metric)
    return _svg(figure, axes, salt="curves", legend=bool(curves))


def crossover_figure(found: "Crossover") -> str:
    """The two curves of a crossover on log scales, with the interval of the place where they cross, as SVG."""
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    figure, axes = _figure(height=4.0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for at, (label, values) in enumerate(zip(found.labels, found.curves, strict=True)):
        (line,) = axes.plot(found.xs, values, marker="os"[at], label=_plain(label))
        line.set(color=_COLOURS[at], linestyle=_DASHES[at])
    if found.at is not None:
        ends = max(found.low, found.xs[0]), min(found.high, found.xs[-1])
        axes.axvspan(*ends, color=_GREY, alpha=0.3, linewidth=0)
        axes.axvline(found.at, color=_GREY, linestyle="dotted")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(found.along)
    axes.set_ylabel(found.metric.replace("_", " "))
    return _svg(figure, axes, salt=f"crossover {found.along} {found.settings}", legend=True)


def rounds_figure(found: "Rounds") -> str:
    """The ratio of each round with the speedup and its 95% interval, as SVG; rounds far off stand at the frame."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = _figure(height=3.2)
    low, high = _frame_of(found)
    places = [(at + 0.5) * found.count / len(found.ratios) + 0.5 for at in range(len(found.ratios))]
    axes.axhspan(found.estimate.low, found.estimate.high, color=_GREY, alpha=0.3, linewidth=0)
    axes.axhline(found.estimate.value, color=_COLOURS[0])
    axes.axhline(1.0, color=_GREY, linestyle="dotted")
    for x, ratio in zip(places, found.ratios, strict=True):
        marker = "v" if ratio < low else "^" if ratio > high else "o"
        axes.plot(x, min(max(ratio, low), high), marker, color=_COLOURS[0], markersize=3, clip_on=False)
    axes.set_ylim(low, high)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")
    axes.set_ylabel(_plain(f"{found.labels[1]} / {found.labels[0]}"))
    return _svg(figure, axes, salt=f"rounds {found.labels} {found.settings}", legend=False)


def _frame_of(found: "Rounds") -> tuple[float, float]:
    """Room for the interval and for all rounds but those a few times further out than the middle half of them."""
    ordered = sorted(found.ratios)
    first, last = quantile(ordered, 0.25), quantile(ordered, 0.75)
    reach = 3 * (last - first)
    inner = [ratio for ratio in ordered if first - reach <= ratio <= last + reach]
    low, high = min(inner[0], found.estimate.low), max(inner[-1], found.estimate.high)
    margin = 0.08 * (high - low) or 0.01 * high
    return low - margin, high + margin


def _figure(*, height: float) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure

    # A Figure of its own, without pyplot: nothing global is left behind, and no window can open.
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(color=_GREY, alpha=0.3, linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for part in ("bottom", "left"):
        axes.spines[part].set_color(_TEXT)
    axes.tick_params(colors=_TEXT)
    axes.xaxis.label.set_color(_TEXT)
    axes.yaxis.label.set_color(_TEXT)
    return figure, axes


def _plain(text: str) -> str:
    """Text as it stands: matplotlib would read dollars as formulas, and hide labels that begin with an underscore."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _wrapped(text: str) -> str:
    """A label in lines that leave room for what it stands beside."""
    return textwrap.fill(_plain(text), _LABEL_CHARACTERS, break_on_hyphens=False, drop_whitespace=False)


def _more_inches(labels: Sequence[str]) -> float:
    """What the longest label is higher than a line."""
    return _LINE_INCHES * max((label.count("\n") for label in labels), default=0)


def _svg(figure: "Figure", axes: "Axes", *, salt: str, legend: bool) -> str:
    import matplotlib

    if legend:
        below = figure.legend(loc="outside lower center", ncols=2, frameon=False, labelcolor=_TEXT, fontsize="small")
        below.set_in_layout(True)
    text = io.StringIO()
    # The salt keeps the ids of two figures of one page apart, and the same from one writing to the next.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}), warnings.catch_warnings():
        # The reader's browser sets the text, and has the letters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inlined(text.getvalue())


def _inlined(svg: str) -> str:
    """What may stand inside HTML: no prologue, namespaces or metadata, and the page's own text colour."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    return svg.replace(_TEXT, "currentColor")
