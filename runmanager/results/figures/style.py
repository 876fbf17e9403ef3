"""How every figure looks: its size, its frame, its numbers, and what tells its parts from each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    *("COLOURS", "DASHES", "GREY", "MARKERS", "TEXT", "WIDTH_INCHES"),
    *("house_style", "legend_below", "log_worth_it", "new_figure", "numbers", "whole_numbers"),
]

# Okabe and Ito's palette, told apart by colour-blind readers; without its black and its yellow, which are lost on a
# dark or a light page.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
MARKERS = "os^Dv<"
DASHES = ("solid", "dashed", "dotted")
GREY = "#888888"
TEXT = "#010203"
"""Near-black, and a colour that nothing else has: a page finds it, and sets its own text colour in its place."""

WIDTH_INCHES = 5.4
"""At 10 points, text that can be read where the figure is as wide as a telephone, or a column of a paper."""

_LOG_FROM = 20.0  # times between the smallest and the largest: above it the small ones could not be told apart


@contextmanager
def house_style() -> Iterator[None]:
    """What is drawn within looks the same whatever the user's own matplotlibrc or style sheet says."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Dollars in a setting are no formula, and an axis of numbers says them whole.
        matplotlib.rcParams.update({"text.parse_math": False, "axes.formatter.useoffset": False})
        yield


def new_figure(*, height: float, width: float = WIDTH_INCHES) -> "tuple[Figure, Axes]":
    """A figure of one frame; sizes in inches."""
    from matplotlib.figure import Figure

    # A Figure of its own, without pyplot: nothing global is left behind, and no window can open.
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(color=GREY, alpha=0.3, linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(TEXT)
    axes.tick_params(colors=TEXT)
    axes.xaxis.label.set_color(TEXT)
    axes.yaxis.label.set_color(TEXT)
    return figure, axes


def legend_below(figure: "Figure", *, columns: int = 2) -> None:
    """Says below the frame what its parts are called."""
    below = figure.legend(
        loc="outside lower center", ncols=columns, frameon=False, labelcolor=TEXT, fontsize="small", handlelength=3
    )
    below.set_in_layout(True)


def log_worth_it(smallest: float, largest: float) -> bool:
    """Whether values above 0 lie too far apart for a linear scale."""
    return 0 < _LOG_FROM * smallest < largest


def numbers(axes: "Axes", which: Literal["x", "y"], *, log: bool = False) -> None:
    """Plain numbers along an axis, `1,000` and never a power of ten."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    if log:
        axes.set(**{f"{which}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))


def whole_numbers(axes: "Axes") -> None:
    """Ticks along x at whole numbers alone."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
