"""A sweep's findings and tables as Markdown and its figures as PNG, to be shown by another program."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runmanager.results.compare.comparison import with_numbered_reasons
from runmanager.results.figures.figure import SweepFigure, render
from runmanager.results.findings.headlines import headlines
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.table_model.columns import Table
from runmanager.results.tables.seeds import collapse_seeds
from runmanager.results.tables.text_formats import escape_markdown, to_markdown
from runmanager.text import in_backticks, shell_join

__all__ = ["MarkdownSummary", "summarize_in_markdown"]

_MAX_ROWS = 50  # as in the terminal
_DOTS_PER_INCH = 130  # 702 pixels, twice the width of TensorBoard's cards, which can be enlarged


@dataclass(frozen=True)
class MarkdownSummary:
    """Markdown `texts` and PNG `pictures`, each by name."""

    texts: dict[str, str]
    pictures: dict[str, bytes]


def summarize_in_markdown(snapshot: SweepSnapshot) -> MarkdownSummary:
    """Summarize the sweep by its answers and results, and, for several cells, comparison and figures."""
    answers = headlines(
        snapshot.sweep,
        snapshot.plan,
        results=snapshot.results,
        comparison=snapshot.comparison,
        crossovers=snapshot.crossovers,
    )
    cells = collapse_seeds(snapshot.results)
    figures = snapshot.figures if len(cells.rows) > 1 else []  # with a single cell there is nothing to compare
    folder = str(snapshot.sweep.paths.root)
    texts = {
        "answers": "\n".join(f"- {escape_markdown(line)}" for line in answers),
        "comparison": _table(with_numbered_reasons(snapshot.comparison), ["runmanager", "compare", folder, "--all"]),
        "figures": "\n\n".join(_figure_texts(figures)),
        "results": _table(cells, ["runmanager", "table", folder, "--all"]),
    }
    return MarkdownSummary(
        texts={name: text for name, text in texts.items() if text},
        pictures={each.name: render(each, "png", dots_per_inch=_DOTS_PER_INCH) for each in figures},
    )


def _table(table: Table, command: Sequence[str]) -> str:
    """The first rows, with the `command` that shows all of them; empty for a table without rows."""
    if not table.rows:
        return ""
    count = len(table.rows)
    shown_by = in_backticks(shell_join(command))
    more = (f"The first {_MAX_ROWS} of {count:,} rows; {shown_by} shows all.",) if count > _MAX_ROWS else ()
    return to_markdown(dataclasses.replace(table, rows=table.rows[:_MAX_ROWS], notes=(*more, *table.notes)))


def _figure_texts(figures: list[SweepFigure]) -> Iterator[str]:
    for figure in figures:
        name, *texts = map(escape_markdown, (figure.name, figure.caption, figure.description))
        yield f"**{name}**: {' '.join(texts)}"
