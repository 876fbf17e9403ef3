"""A figure of a sweep with its texts, rendered as SVG or PNG, helpers for captions, and the cells that figures show."""

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from runmanager.records.run.status import is_complete
from runmanager.results.figures.style import PAGE, TEXT, fixed_style, shades, shades_on_dark
from runmanager.results.findings.comparison_findings import named_settings
from runmanager.results.stats.descriptive import mean
from runmanager.results.table_model.columns import Row, Table
from runmanager.results.tables.shown_rows import seed_groups
from runmanager.text import pluralize, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_T = TypeVar("_T")

FigureFormat = Literal["svg", "png"]
FIGURE_FORMATS: tuple[FigureFormat, ...] = get_args(FigureFormat)

_DOTS_PER_INCH = 300  # as journals require for pictures with text


@dataclass(frozen=True)
class SweepFigure:
    """A figure of a sweep, drawn on demand.

    `name` is unique among the sweep's figures and usable as a file name: `throughput`, `crossover-2`. `caption` says
    what is shown and how it was computed; `description` is a text alternative for readers who cannot see the figure.
    `svg` is what `inline_svg` returned, of a figure that is shown again as it was.
    """

    name: str
    title: str
    caption: str
    description: str
    drawing: "Callable[[], Figure]" = field(repr=False)
    svg: str | None = field(default=None, repr=False)

    def draw(self) -> "Figure":
        """Draw the figure near-black on white: a new matplotlib figure, independent of pyplot."""
        with fixed_style():
            return self.drawing()


def inline_svg(figure: SweepFigure) -> str:
    """The figure as an `<svg>` element for HTML, in the page's colours, without prologue, namespaces or metadata."""
    if figure.svg is not None:
        return figure.svg
    svg = _save(figure, "svg", {}, transparent=True).decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    return _with_themed_shades(svg.replace(TEXT, "currentColor").replace(PAGE, "var(--page, Canvas)"))


def _with_themed_shades(svg: str) -> str:
    """Replace the shades by CSS variables that depend on the page's colour scheme."""
    for index, shade in enumerate(shades()):
        svg = svg.replace(f": {shade}", f": var(--shade-{index}, {shade})")
    if "var(--shade-" not in svg:
        return svg
    dark = "; ".join(f"--shade-{index}: {shade}" for index, shade in enumerate(shades_on_dark()))
    return f"<style>@media screen and (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>{svg}"


def render(figure: SweepFigure, format_: FigureFormat, *, dots_per_inch: int = _DOTS_PER_INCH) -> bytes:
    """The content of a standalone file: near-black on white, with title and description as metadata.

    `dots_per_inch` applies to PNG; a figure is 5.4 inches wide.
    """
    metadata = {"Title": printable(figure.title), "Description": printable(figure.description)}
    return _save(figure, format_, metadata, transparent=False, dots_per_inch=dots_per_inch)


def _save(
    figure: SweepFigure,
    format_: FigureFormat,
    metadata: Mapping[str, str],
    *,
    transparent: bool,
    dots_per_inch: int = _DOTS_PER_INCH,
) -> bytes:
    import matplotlib

    drawn = figure.draw()
    # Without date and software, the same runs give the same bytes.
    omitted = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[format_]
    content = io.BytesIO()
    # The salt makes ids reproducible, and different for the figures of a page.
    settings = matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": figure.name})
    with fixed_style(), settings, warnings.catch_warnings():
        # The browser renders the text of an SVG, with fonts that have the glyphs missing in matplotlib's font.
        warnings.filterwarnings("ignore", message="Glyph")
        drawn.savefig(
            content,
            format=format_,
            transparent=transparent,
            dpi=dots_per_inch if format_ == "png" else "figure",
            metadata={**metadata, **omitted},
        )
    return content.getvalue()


def top_note(count: int, limit: int, which: str, how: str = "shown") -> str:
    """A caption's note that only the first `limit` are shown: ` (the 24 fastest of 45 shown)`; empty if all are."""
    return f" (the {limit} {which} of {count} {how})" if count > limit else ""


def sample_note(count: int, limit: int, along: str = "") -> str:
    """A caption's note that a sample is shown: ` (24 of 80, at even steps)`; empty if all are."""
    return f" ({limit} of {count}, at even steps{along})" if count > limit else ""


def sample_evenly(ordered: Sequence[_T], limit: int) -> Sequence[_T]:
    """At most `limit` items at even steps, including the first and the last."""
    if len(ordered) <= limit:
        return ordered
    return [ordered[round(index * (len(ordered) - 1) / (limit - 1))] for index in range(limit)]


def join_names(names: Sequence[str]) -> str:
    """Join names as in `lr, model and seed`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def numbered_names(name: str, figures: Sequence[Any]) -> list[str]:
    """Names for several figures of one kind: `rounds`, `rounds-2`, `rounds-3`."""
    return [name if number == 1 else f"{name}-{number}" for number in range(1, len(figures) + 1)]


@dataclass(frozen=True)
class GridCell:
    """The rows of the results table that differ only in the seed."""

    label: str
    rows: Sequence[Row]

    @property
    def finished(self) -> list[Row]:
        """The rows of runs that are complete."""
        return [row for row in self.rows if is_complete(row["status"], row["reason"])]

    def mean(self, column: str) -> float | None:
        """The mean of a measured column over the finished runs that have it."""
        return self.mean_of(lambda row: row[column])

    def mean_of(self, value_of: Callable[[Row], float | None]) -> float | None:
        """The mean of a value of each row over the finished runs that have it."""
        known = [value for row in self.finished if (value := value_of(row)) is not None]
        return mean(known) if known else None

    def has(self, setting: str) -> bool:
        """Whether the cell has the setting, possibly set to null."""
        return setting not in self.rows[0].absent_settings

    def value(self, setting: str) -> Any:
        """The value of a setting in all runs of the cell."""
        return self.rows[0][setting]


def varying_columns(results: Table) -> list[str]:
    """The columns of the settings that differ between runs, without the seed."""
    return [name for name in results.settings if name in results.shown and name not in results.seeds]


def grid_cells(results: Table) -> list[GridCell]:
    """All cells in the order of their first rows."""
    return [GridCell(_label(rows, results), rows) for rows in seed_groups(results)]


def _label(rows: Sequence[Row], results: Table) -> str:
    """The settings that distinguish a cell; for a single cell, the run's name or the number of seeds."""
    settings = named_settings(rows[0], results, without=results.seeds)
    return settings or (str(rows[0]["run"]) if len(rows) == 1 else pluralize(len(rows), "seed"))
