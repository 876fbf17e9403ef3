"""How a sweep shows itself: the answer first, then what failed and the table, as HTML for a notebook or as lines."""

import dataclasses
from collections.abc import Sequence

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import SweepContents
from runmanager.results.model.columns import Table
from runmanager.results.report.html import render_template
from runmanager.results.report.html_table import page_table
from runmanager.results.tables.seeds import collapse_seeds

__all__ = ["sweep_as_html", "sweep_as_text"]

_MAX_ROWS = 20
_MAX_FAILURES = 10


def sweep_as_text(paths: SweepPaths, answers: Sequence[str]) -> str:
    """The answers below what it is, a line each."""
    return "\n".join([f"Sweep({str(paths.root)!r})", *(f"  {line}" for line in answers)])


def sweep_as_html(contents: SweepContents, results: Table, answers: Sequence[str]) -> str:
    """A part of a page that takes the page's own colours and letters, and styles nothing but itself.

    The first rows of the table and the first failures are in it, and how many there are more.
    """
    cells = collapse_seeds(results, each="`.runs` has a row for each run.")
    ended_badly = [
        run.record for run in contents.runs if run.record.status.is_ended and not run.record.status.is_success
    ]
    first = dataclasses.replace(cells, rows=cells.rows[:_MAX_ROWS])
    return render_template(
        "sweep.html",
        answers=answers,
        failures=ended_badly[:_MAX_FAILURES],
        num_failures=len(ended_badly),
        table=page_table(first, title="Results", file="results.csv"),
        num_rows=len(cells.rows),
    )
