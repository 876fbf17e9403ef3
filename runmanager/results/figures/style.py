"""How every figure looks: its size, its frame, its numbers, and what tells its parts from each other."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from runmanager.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    *(
        "GREY",
        "MAX_ROWS",
        "PAGE",
        "TEXT",
        "SeriesStyle",
        "new_frameless_figure",
        "new_row_figure",
        "fixed_style",
        "add_legend_below",
    ),
    *("series_style", "wrapped_name", "new_figure", "label_text", "shades", "shades_on_dark", "shortened", "wrapped"),
]

# Okabe and Ito's palette, told apart by colour-blind readers; without its black and its yellow, which are lost on a
# dark or a light page.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
_MARKERS = "os^Dv<"
_DASHES = ("solid", "dashed", "dotted")
GREY = "#888888"
TEXT = "#010203"
"""Near-black, and a colour that nothing else has: a page finds it, and sets its own text colour in its place."""

PAGE = "#fefdfc"
"""Near-white, and likewise no other colour: a page sets its own in its place."""

MAX_ROWS = 24
"""Of a figure with a row for each of many: more would take pages to scroll through."""

# At 10 points, text that can be read where the figure is as wide as a telephone, or a column of a paper.
_WIDTH_INCHES = 5.4
_LINE_INCHES = 0.135  # of small text
_BETWEEN_ROWS_INCHES = 0.12
_ROW_CHARACTERS = 34

# Where on the map viridis the shades begin and end: what is left out would be lost on the page.
_ON_WHITE, _ON_DARK, _NUM_SHADES = (0.9, 0.0), (0.3, 1.0), 7


_LINE_CHARACTERS = 30  # less than half the width
_LABEL_CHARACTERS = 150


class SeriesStyle(NamedTuple):
    """How one of several lines or marks is drawn: colour is never alone in telling them apart."""

    colour: str
    marker: str
    dash: str


def series_style(at: int) -> SeriesStyle:
    """The look of the one at that place, from 0; of lines, eighteen differ."""
    return SeriesStyle(
        _COLOURS[at % len(_COLOURS)], _MARKERS[at % len(_MARKERS)], _DASHES[at // len(_COLOURS) % len(_DASHES)]
    )


@contextmanager
def fixed_style() -> Iterator[None]:
    """What is drawn within looks the same whatever the user's own matplotlibrc or style sheet says."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Dollars in a setting are no formula, and an axis of numbers says them whole.
        matplotlib.rcParams.update({"text.parse_math": False, "axes.formatter.useoffset": False})
        yield


def new_figure(*, height: float, legend: Sequence[str] = ()) -> "tuple[Figure, Axes]":
    """A figure of one frame, so many inches high, and with room below for a `legend` of two columns."""
    from matplotlib.figure import Figure

    # A Figure of its own, without pyplot: nothing global is left behind, and no window can open.
    below = (len(legend) + 1) // 2 * (_BETWEEN_ROWS_INCHES / 2 + _inches(legend)) if legend else 0.0
    figure = Figure(figsize=(_WIDTH_INCHES, height + below), layout="constrained")
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


def new_row_figure(labels: Sequence[str]) -> "tuple[Figure, Axes]":
    """A figure with a row for each label, from above; they stand at y = 0, 1, 2 …"""
    lines = [wrapped(label, _ROW_CHARACTERS) for label in labels]
    figure, axes = new_figure(height=1.3 + len(labels) * (_BETWEEN_ROWS_INCHES + _inches(lines)))
    axes.set_yticks(range(len(labels)), lines, fontsize="small")
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    return figure, axes


def _inches(labels: Sequence[str]) -> float:
    """How high the highest of these is in small text."""
    return _LINE_INCHES * max(label.count("\n") + 1 for label in labels)


def new_frameless_figure(*, height: float) -> "tuple[Figure, Axes]":
    """A figure without a frame, for one that draws its own axes; what stands along x is named above."""
    figure, axes = new_figure(height=height)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_yticks([])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    return figure, axes


def add_legend_below(figure: "Figure", *, columns: int = 2) -> None:
    """Says below the frame what its parts are called."""
    figure.legend(
        loc="outside lower center", ncols=columns, frameon=False, labelcolor=TEXT, fontsize="small", handlelength=3
    )


def shades() -> list[str]:
    """Colours of even steps from worse to better, on white: the better, the darker."""
    return _shades(_ON_WHITE)


def shades_on_dark() -> list[str]:
    """The same where the page is dark: the better the brighter."""
    return _shades(_ON_DARK)


def _shades(ends: tuple[float, float]) -> list[str]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    first, last = ends
    steps = (first + (last - first) * at / (_NUM_SHADES - 1) for at in range(_NUM_SHADES))
    return [to_hex(colormaps["viridis"](step)) for step in steps]


def label_text(text: str) -> str:
    """Text of bounded length, for a figure: what would steer it is written out.

    A label that begins with an underscore would be hidden by matplotlib, so a space goes before it.
    """
    kept = shortened(printable(text).replace("\n", " "), _LABEL_CHARACTERS)
    return f" {kept}" if kept.startswith("_") else kept


def shortened(text: str, characters: int) -> str:
    """A text whose middle gives way where it is too long: names differ at their ends."""
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]}…{text[half - characters + 1 :]}"


def wrapped(text: str, characters: int = _LINE_CHARACTERS) -> str:
    """A label in lines."""
    lines = textwrap.wrap(label_text(text), characters, break_on_hyphens=False, drop_whitespace=False)
    return "\n".join(line.rstrip() for line in lines)  # a space at a line's end would set it off to the right


def wrapped_name(name: str, characters: int) -> str:
    """A name in lines that break after its dots and underscores."""
    lines = [""]
    for part in re.findall("[^._]+[._]*|[._]+", label_text(name)):
        if lines[-1] and len(lines[-1] + part) > characters:
            lines.append("")
        lines[-1] += shortened(part, characters)
    return "\n".join(lines)
