"""How a sweep is displayed in a notebook: its summary as text or HTML, and its figures."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import SweepContents
from runmanager.results.report.html_pages import render_template
from runmanager.results.report.html_table import build_html_table
from runmanager.results.table_model.columns import Table
from runmanager.results.tables.omitted_rows import without_shorter_runs
from runmanager.results.tables.seeds import collapse_seeds
from runmanager.text import printable_line
from runmanager.validation import did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from runmanager.results.figures.figure import SweepFigure

__all__ = ["choose_figure", "draw_for_notebook", "sweep_as_html", "sweep_as_text"]

_MAX_ROWS = 20
_MAX_FAILURES = 10


def sweep_as_text(paths: SweepPaths, answers: Sequence[str]) -> str:
    """The sweep's folder, then one indented line per answer."""
    return "\n".join([f"Sweep({str(paths.root)!r})", *(f"  {printable_line(line)}" for line in answers)])


def sweep_as_html(contents: SweepContents, results: Table, answers: Sequence[str]) -> str:
    """An HTML fragment with the answers, the first failures and the first rows of the table.

    It inherits the page's colours and fonts, and its styles apply to itself only.
    """
    cells = collapse_seeds(without_shorter_runs(results, "`.runs` has"), each="`.runs` has a row for each run.")
    failures = [run.record for run in contents.runs if run.record.status.is_ended and not run.record.status.is_success]
    first = dataclasses.replace(cells, rows=cells.rows[:_MAX_ROWS])
    return render_template(
        "sweep.html",
        answers=answers,
        failures=failures[:_MAX_FAILURES],
        num_failures=len(failures),
        table=build_html_table(first, title="Results", file="results.csv"),
        num_rows=len(cells.rows),
    )


def choose_figure(figures: "Sequence[SweepFigure]", name: str | None) -> "SweepFigure":
    """The figure with this name, or the first one. Raises `UsageError`, with the nearest name, if it does not exist."""
    if not figures:
        raise UsageError("A plot must have data to show, got a sweep without a measured epoch; wait for one.")
    if name is None:
        return figures[0]
    known = {figure.name: figure for figure in figures}
    if name in known:
        return known[name]
    hint = did_you_mean(name, known, max_names=1) or "choose one of these."
    raise UsageError(f"A plot must be one that the sweep has ({', '.join(known)}), got '{name}'; {hint}")


def draw_for_notebook(figure: "SweepFigure") -> "Figure":
    """Draw the figure; inside IPython, also register the formatter that displays matplotlib figures.

    IPython registers it only when pyplot is imported, which this package avoids.
    """
    from matplotlib.figure import Figure

    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None:
        formatters = shell.display_formatter.formatters.values()
        if not any(Figure in formatter.type_printers for formatter in formatters):
            from IPython.core.pylabtools import select_figure_formats

            select_figure_formats(shell, {"png"})
    return figure.draw()
