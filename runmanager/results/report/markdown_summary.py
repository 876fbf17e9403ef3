"""A sweep for the page of another program: what it found and its tables as Markdown, its figures as PNG."""

import dataclasses
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from runmanager.results.compare.comparison import with_numbered_reasons
from runmanager.results.figures.figure import SweepFigure, render
from runmanager.results.findings.headlines import headlines
from runmanager.results.model.columns import Table
from runmanager.results.snapshot import SweepSnapshot
from runmanager.results.tables.seeds import collapse_seeds
from runmanager.results.tables.writers import escape_markdown, to_markdown

__all__ = ["MarkdownSummary", "summarize_in_markdown"]

_MAX_ROWS = 50  # as in a terminal
_DOTS_PER_INCH = 130  # 702 pixels: twice the width of cards in TensorBoard, which show it whole when asked


@dataclass(frozen=True)
class MarkdownSummary:
    """`texts` are Markdown and `pictures` PNG, each by its name."""

    texts: dict[str, str]
    pictures: dict[str, bytes]


def summarize_in_markdown(snapshot: SweepSnapshot) -> MarkdownSummary:
    """The sweep as a page shows it: answers and results, and of several cells comparison and figures too."""
    said = headlines(
        snapshot.sweep,
        snapshot.plan,
        results=snapshot.results,
        comparison=snapshot.comparison,
        crossovers=snapshot.crossovers,
    )
    cells = collapse_seeds(snapshot.results)
    figures = snapshot.figures if len(cells.rows) > 1 else []  # of a single cell they compare nothing
    folder = shlex.quote(str(snapshot.sweep.paths.root))
    texts = {
        "answers": "\n".join(f"- {escape_markdown(line)}" for line in said),
        "comparison": _table(with_numbered_reasons(snapshot.comparison), f"runmanager compare {folder} --all"),
        "figures": "\n\n".join(_words(figures)),
        "results": _table(cells, f"runmanager table {folder} --all"),
    }
    return MarkdownSummary(
        texts={name: text for name, text in texts.items() if text},
        pictures={each.name: render(each, "png", dots_per_inch=_DOTS_PER_INCH) for each in figures},
    )


def _table(table: Table, whole: str) -> str:
    """The first rows; `whole` is the command that shows all. Nothing of a table without rows."""
    if not table.rows:
        return ""
    count = len(table.rows)
    more = (f"The first {_MAX_ROWS} of {count:,} rows; `{whole}` has them all.",) if count > _MAX_ROWS else ()
    return to_markdown(dataclasses.replace(table, rows=table.rows[:_MAX_ROWS], notes=(*more, *table.notes)))


def _words(figures: list[SweepFigure]) -> Iterator[str]:
    for figure in figures:
        name, *texts = map(escape_markdown, (figure.name, figure.caption, figure.description))
        yield f"**{name}**: {' '.join(texts)}"
