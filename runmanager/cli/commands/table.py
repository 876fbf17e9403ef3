"""`runmanager table`: a sweep's results."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.arguments import SweepName
from runmanager.cli.completion import complete_columns
from runmanager.cli.printing import console, print_text, print_warning, render, warn_damaged
from runmanager.cli.table_formats import DATA_FORMATS, MAX_TEXT_ROWS, TableFormat, format_table
from runmanager.errors import UsageError
from runmanager.records.sweep.lookup import find_sweep

if TYPE_CHECKING:
    from runmanager.results.model.columns import Table
    from runmanager.results.tables.query import View

__all__ = ["table"]


def table(
    sweep: SweepName,
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="The runs for which it holds: 'device==cuda and lr<0.1'."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Best first for accuracies and throughput, else the smallest first.",
            autocompletion=complete_columns,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C", help="These columns or settings alone, in every format.", autocompletion=complete_columns
        ),
    ] = None,
    pivot: Annotated[
        str | None,
        typer.Option(
            metavar="ROWS:COLUMNS[:METRIC]",
            help="Medians over runs, one setting down, one across; METRIC is epoch_seconds or another column.",
        ),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every row, not only the first 50; files have all.")] = False,
    each: Annotated[
        bool, typer.Option("--each", help="A row a run; without it those that differ in the seed alone are one row.")
    ] = False,
    events: Annotated[
        bool,
        typer.Option(
            "--events", help="SWEEP is any folder of TensorBoard's event files: a row for each folder that holds some."
        ),
    ] = False,
    work: Annotated[
        bool, typer.Option("--work", help="The work done in a second, and its share of what the device can do at best.")
    ] = False,
    format_: Annotated[TableFormat, typer.Option("--format", help="Files hold every row and column.")] = (
        TableFormat.TEXT
    ),
) -> None:
    """Show a sweep's results: one row a run (in text one for all seeds of a cell), the fastest epoch first."""
    from runmanager.results.tables.query import View

    for name, given in (("--events", events), ("--work", work)):
        if given and each:
            raise UsageError(f"`--each` must go without {name}, got both; there is a row for each as it is.")
    if events and work:
        raise UsageError("`--work` must go without --events, got both; other programs' event files hold none.")
    view = View.read(where=where, sort=sort, columns=columns, pivot=pivot, each=each)
    if events:
        results, name, damaged = _of_events(Path(sweep), view)
    elif work:
        results, name, damaged = _of_work(sweep, view)
    else:
        results, name, damaged = _of_sweep(sweep, view, collapses=format_ is TableFormat.TEXT)
    if format_ in DATA_FORMATS:
        warn_damaged(damaged)
        if view.where is not None and not results.rows:
            print_warning(results.notes[0])
    if format_ is TableFormat.TEXT:
        _show_results(results, limit=None if show_all else MAX_TEXT_ROWS)
    else:
        print_text(format_table(results, format_, title=f"Results of {name}"))


def _show_results(results: "Table", *, limit: int | None) -> None:
    from runmanager.results.tables.terminal import results_table

    where = console()
    print_text(render(where, results_table(results, limit=limit, width=where.width)))


def _of_sweep(given: str, view: "View", *, collapses: bool) -> "tuple[Table, str, Sequence[str]]":
    """What is asked for of a sweep's results, its name, and what could not be read."""
    from runmanager.results.load.loader import read_summary

    paths = find_sweep(given)
    summary, plan = read_summary(paths)
    results = view.of(summary, plan, collapses=collapses)
    return results, paths.name, [each.message for each in summary.damaged]


def _of_work(given: str, view: "View") -> "tuple[Table, str, Sequence[str]]":
    """The same of the work that its runs have done."""
    from runmanager.results.findings.roofline import roofline_rows
    from runmanager.results.load.loader import read_results

    paths = find_sweep(given)
    contents, plan = read_results(paths)
    return view.of_table(roofline_rows(contents, plan)), paths.name, [each.message for each in contents.damaged]


def _of_events(folder: Path, view: "View") -> "tuple[Table, str, Sequence[str]]":
    """The same of a folder of event files."""
    from runmanager.results.tfevents.table import event_rows, read_event_folders

    found = read_event_folders(folder)
    results = view.of_table(event_rows(found))
    return results, folder.resolve().name, [line for each in found.values() for line in each.damage]
