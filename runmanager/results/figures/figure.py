"""One figure of a sweep: its words, how it is drawn, and the SVG or PNG that it becomes."""

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from runmanager.results.figures.style import PAGE, TEXT, fixed_style, shades, shades_on_dark
from runmanager.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    *(
        "FIGURE_FORMATS",
        "SweepFigure",
        "FigureFormat",
        "sample_evenly",
        "top_note",
        "inline_svg",
        "join_names",
        "numbered_names",
        "render",
        "sample_note",
    ),
]

_T = TypeVar("_T")

FigureFormat = Literal["svg", "png"]
FIGURE_FORMATS: tuple[FigureFormat, ...] = get_args(FigureFormat)

_DOTS_PER_INCH = 300  # what journals ask of pictures with text in them


@dataclass(frozen=True)
class SweepFigure:
    """One figure of a sweep.

    `name` tells it from the sweep's other figures and is fit for a file: `throughput`, `crossover-2`. `title` is a few
    words, `caption` says what is shown and how it was computed, `description` says in words what can be seen, for those
    who cannot see it.
    """

    name: str
    title: str
    caption: str
    description: str
    drawing: "Callable[[], Figure]" = field(repr=False)

    def draw(self) -> "Figure":
        """The figure, made anew, near-black on white; it is nobody's but the caller's, and belongs to no window."""
        with fixed_style():
            return self.drawing()


def inline_svg(drawn: SweepFigure) -> str:
    """The figure as an element inside HTML: no prologue, namespaces or metadata, and the page's own text colour."""
    svg = _saved(drawn, "svg", {}, transparent=True).decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    return _with_shades(svg.replace(TEXT, "currentColor").replace(PAGE, "var(--page, Canvas)"))


def _with_shades(svg: str) -> str:
    """The shades of a figure that has them as the page's scheme wants them."""
    for at, shade in enumerate(shades()):
        svg = svg.replace(f": {shade}", f": var(--shade-{at}, {shade})")
    if "var(--shade-" not in svg:
        return svg
    dark = "; ".join(f"--shade-{at}: {shade}" for at, shade in enumerate(shades_on_dark()))
    return f"<style>@media screen and (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>{svg}"


def render(drawn: SweepFigure, kind: FigureFormat, *, dots_per_inch: int = _DOTS_PER_INCH) -> bytes:
    """The figure as a file that opens alone: near-black on white, its title and description in it.

    `dots_per_inch` are those of a PNG; a figure is 5.4 inches wide.
    """
    metadata = {"Title": printable(drawn.title), "Description": printable(drawn.description)}
    return _saved(drawn, kind, metadata, transparent=False, dots_per_inch=dots_per_inch)


def _saved(
    drawn: SweepFigure,
    kind: FigureFormat,
    metadata: Mapping[str, str],
    *,
    transparent: bool,
    dots_per_inch: int = _DOTS_PER_INCH,
) -> bytes:
    import matplotlib

    figure = drawn.draw()
    # Nothing of when or with what it was made: the same runs give the same bytes.
    unsaid = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[kind]
    content = io.BytesIO()
    # The salt keeps the ids of two figures of one page apart, and the same from one writing to the next.
    settings = matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": drawn.name})
    with fixed_style(), settings, warnings.catch_warnings():
        # A browser sets the text of an SVG itself, and has the letters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(
            content,
            format=kind,
            transparent=transparent,
            dpi=dots_per_inch if kind == "png" else "figure",
            metadata={**metadata, **unsaid},
        )
    return content.getvalue()


def top_note(count: int, most: int, which: str, how: str = "shown") -> str:
    """` (the 24 fastest of 45 shown)`; nothing where all are."""
    return f" (the {most} {which} of {count} {how})" if count > most else ""


def sample_note(count: int, most: int, along: str = "") -> str:
    """` (24 of 80, at even steps)`; nothing where all are shown."""
    return f" ({most} of {count}, at even steps{along})" if count > most else ""


def sample_evenly(ordered: Sequence[_T], most: int) -> Sequence[_T]:
    """At most so many, at even steps from the first to the last."""
    if len(ordered) <= most:
        return ordered
    return [ordered[round(at * (len(ordered) - 1) / (most - 1))] for at in range(most)]


def join_names(names: Sequence[str]) -> str:
    """`lr, model and seed`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def numbered_names(name: str, figures: Sequence[Any]) -> list[str]:
    """Names for several figures of one kind: `rounds`, `rounds-2`, `rounds-3`."""
    return [name if at == 1 else f"{name}-{at}" for at in range(1, len(figures) + 1)]
