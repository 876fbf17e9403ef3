"""The common style of all figures: size, frame, colours, markers and label texts."""

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from runmanager.text import printable_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colour-blind safe palette, without black and yellow, which are invisible on dark or light pages.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
_MARKERS = "os^Dv<"
DASHES = ("solid", "dashed", "dotted")
GREY = "#888888"
TEXT = "#010203"
"""Near-black, used for nothing else, so that inline SVG can replace it by the page's text colour."""

PAGE = "#fefdfc"
"""Near-white, used for nothing else, so that inline SVG can replace it by the page's background."""

MAX_ROWS = 24
"""The maximum number of rows in a figure with one row per item."""

_WIDTH_INCHES = 5.4  # text of 10 points stays legible on a phone and in a column of a paper
_LINE_INCHES = 0.135  # height of a line of small text
_ROW_GAP_INCHES = 0.12
_ROW_CHARACTERS = 34

# The ends of the shades on the colour map viridis; the parts left out have too little contrast with the page.
_ON_WHITE, _ON_DARK, _NUM_SHADES = (0.9, 0.0), (0.3, 1.0), 7


_LINE_CHARACTERS = 30  # less than half the width
_LABEL_CHARACTERS = 150
_MAX_WORD = 12


class SeriesStyle(NamedTuple):
    """How one of several series is drawn; colour is never the only difference."""

    colour: str
    marker: str
    dash: str


def series_style(index: int) -> SeriesStyle:
    """The style of the series with this index; the first eighteen styles are distinct."""
    return SeriesStyle(
        _COLOURS[index % len(_COLOURS)],
        _MARKERS[index % len(_MARKERS)],
        DASHES[index // len(_COLOURS) % len(DASHES)],
    )


@contextmanager
def fixed_style() -> Iterator[None]:
    """Draw independently of the user's matplotlibrc and style sheets."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # A dollar sign in a setting does not start a formula, and tick labels have no offset.
        matplotlib.rcParams.update({"text.parse_math": False, "axes.formatter.useoffset": False})
        yield


def new_figure(*, height: float, legend: Sequence[str] = ()) -> "tuple[Figure, Axes]":
    """A figure with one frame of `height` inches, and space below it for the `legend` in two columns."""
    figure, (axes,) = new_panels(1, height=height, legend=legend)
    return figure, axes


def new_panels(count: int, *, height: float, legend: Sequence[str] = ()) -> "tuple[Figure, list[Axes]]":
    """As `new_figure`, with `count` frames in up to two columns."""
    from matplotlib.figure import Figure

    # Without pyplot, which keeps figures globally and may open windows.
    below = (len(legend) + 1) // 2 * (_ROW_GAP_INCHES / 2 + _inches(legend)) if legend else 0.0
    columns = min(count, 2)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(_WIDTH_INCHES, rows * height + below), layout="constrained")
    panels = [figure.add_subplot(rows, columns, place) for place in range(1, count + 1)]
    for axes in panels:
        axes.grid(color=GREY, alpha=0.3, linewidth=0.5)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for side in ("bottom", "left"):
            axes.spines[side].set_color(TEXT)
        axes.tick_params(colors=TEXT)
        axes.title.set_color(TEXT)
        axes.xaxis.label.set_color(TEXT)
        axes.yaxis.label.set_color(TEXT)
    return figure, panels


def new_row_figure(labels: Sequence[str]) -> "tuple[Figure, Axes]":
    """A figure with a row for each label, from top to bottom, at y = 0, 1, 2, …"""
    lines = [wrapped(label, _ROW_CHARACTERS) for label in labels]
    figure, axes = new_figure(height=1.3 + len(labels) * (_ROW_GAP_INCHES + _inches(lines)))
    axes.set_yticks(range(len(labels)), lines, fontsize="small")
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    return figure, axes


def _inches(labels: Sequence[str]) -> float:
    """The height of the highest label in small text."""
    return _LINE_INCHES * max(label.count("\n") + 1 for label in labels)


def new_frameless_figure(*, height: float) -> "tuple[Figure, Axes]":
    """A figure without frame and y ticks, with x labels at the top."""
    figure, axes = new_figure(height=height)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_yticks([])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    return figure, axes


def add_legend_below(figure: "Figure", *, columns: int = 2) -> None:
    """Add a legend below the frame."""
    figure.legend(
        loc="outside lower center", ncols=columns, frameon=False, labelcolor=TEXT, fontsize="small", handlelength=3
    )


def shades() -> list[str]:
    """Colours from worse to better at even steps, for white pages: better is darker."""
    return _shades(_ON_WHITE)


def shades_on_dark() -> list[str]:
    """Colours from worse to better at even steps, for dark pages: better is brighter."""
    return _shades(_ON_DARK)


def _shades(ends: tuple[float, float]) -> list[str]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    first, last = ends
    steps = (first + (last - first) * index / (_NUM_SHADES - 1) for index in range(_NUM_SHADES))
    return [to_hex(colormaps["viridis"](step)) for step in steps]


def label_text(text: str) -> str:
    """Text of bounded length in one line, with control characters made visible.

    A label that starts with an underscore gets a leading space, as matplotlib would hide it.
    """
    label = shortened(printable_line(text.replace("\n", " ")), _LABEL_CHARACTERS)
    return f" {label}" if label.startswith("_") else label


def shortened(text: str, characters: int) -> str:
    """Shorten a long text in the middle, as names differ at their ends."""
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]}…{text[half - characters + 1 :]}"


def wrapped(text: str, characters: int = _LINE_CHARACTERS) -> str:
    """A label broken into lines of at most `characters`."""
    lines = textwrap.wrap(label_text(text), characters, break_on_hyphens=False, drop_whitespace=False)
    return "\n".join(line.rstrip() for line in lines)  # a trailing space would shift right-aligned lines


def wrapped_name(name: str, characters: int) -> str:
    """A name broken into lines after dots, underscores and spaces; longer words have a line each."""
    lines = [""]
    for part in re.findall("[^._ ]+[._ ]*|[._ ]+", label_text(name)):
        if lines[-1] and len((lines[-1] + part).rstrip()) > characters:
            lines.append("")
        lines[-1] += shortened(part, max(characters, _MAX_WORD))
    return "\n".join(line.rstrip() for line in lines)
