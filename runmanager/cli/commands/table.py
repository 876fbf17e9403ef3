"""`runmanager table`: the results of one sweep, or of several."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.arguments import BetterOption, SweepNames, complete_columns
from runmanager.cli.printing import (
    DATA_FORMATS,
    TableFormat,
    console,
    max_text_rows,
    print_rendered,
    print_table,
    print_warning,
    warn_damaged,
)
from runmanager.errors import UsageError
from runmanager.records.sweep.lookup import find_sweep

if TYPE_CHECKING:
    from runmanager.results.table_model.columns import Table
    from runmanager.results.tables.query import TableQuery


def table(
    sweeps: SweepNames,
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Only runs that meet it: 'device==cuda and lr<0.1'."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Largest first where that is better, as for accuracies and throughput, else smallest first.",
            autocompletion=complete_columns,
        ),
    ] = None,
    better: BetterOption = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C", help="Only these columns or settings, in every format.", autocompletion=complete_columns
        ),
    ] = None,
    pivot: Annotated[
        str | None,
        typer.Option(
            metavar="ROWS:COLUMNS[:METRIC]",
            help="Medians over runs, one setting down, one across; METRIC is epoch_seconds or another column.",
        ),
    ] = None,
    show_all: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Show every row, in a terminal past the first 50, and shorter runs that longer ones continue.",
        ),
    ] = False,
    each: Annotated[
        bool, typer.Option("--each", help="One row a run; by default runs that differ only in the seed share a row.")
    ] = False,
    events: Annotated[
        bool,
        typer.Option(
            "--events", help="SWEEP is any folder; one row for each folder in it with TensorBoard event files."
        ),
    ] = False,
    work: Annotated[
        bool, typer.Option("--work", help="The work done in a second, and its share of the device's measured peak.")
    ] = False,
    format_: Annotated[TableFormat, typer.Option("--format", help="Files hold every row and column.")] = (
        TableFormat.TEXT
    ),
) -> None:
    """Show the results of sweeps: one row a run (in text one for all seeds of a cell), the best one first.

    Where devices are compared, and in files, the fastest epoch is first.
    """
    from runmanager.results.tables.query import TableQuery

    for name, given in (("--events", events), ("--work", work)):
        if given and each:
            raise UsageError(f"`--each` must go without {name}, got both; each already has its row.")
    if events and work:
        raise UsageError("`--work` must go without --events, got both; event files of other programs contain none.")
    for option, given in (("--events", events), ("--work", work)):
        if given and len(sweeps) > 1:
            raise UsageError(f"`{option}` must go with one sweep, got {len(sweeps)}; give one at a time.")
    query = TableQuery.parse(where=where, sort=sort, columns=columns, pivot=pivot, each=each, better=better)
    if events:
        results, name, damaged = _event_file_results(Path(sweeps[0]), query)
    elif work:
        results, name, damaged = _work_results(sweeps[0], query)
    else:
        is_text = format_ is TableFormat.TEXT
        results, name, damaged = _sweep_results(sweeps, query, collapses=is_text, shows_all=show_all)
    if format_ in DATA_FORMATS:
        warn_damaged(damaged)
        if query.where is not None and not results.rows:
            print_warning(results.notes[0])
    if format_ is TableFormat.TEXT:
        _show_results(results, limit=max_text_rows(show_all=show_all))
    else:
        print_table(results, format_, title=f"Results of {name}")


def _show_results(results: "Table", *, limit: int | None) -> None:
    from runmanager.results.tables.terminal import render_results

    target = console()
    print_rendered(target, render_results(results, limit=limit, width=target.width))


def _sweep_results(
    given: Sequence[str], query: "TableQuery", *, collapses: bool, shows_all: bool
) -> "tuple[Table, str, Sequence[str]]":
    """The results of sweeps as `query` selects them, their names, and messages about unreadable files."""
    from runmanager.results.load.loader import read_summary
    from runmanager.results.load.several_sweeps import name_sweeps, read_sweeps

    named = name_sweeps([find_sweep(each) for each in given])
    if len(named) > 1:
        sweeps = read_sweeps(list(named.values()))
        damaged = [damage.message for each in sweeps for damage in each.summary.damaged]
        return query.of_sweeps(sweeps, collapses=collapses, shows_all=shows_all), ", ".join(named), damaged
    (paths,) = named.values()
    summary, plan = read_summary(paths)
    results = query.of_sweep(summary, plan, collapses=collapses, shows_all=shows_all)
    return results, paths.name, [each.message for each in summary.damaged]


def _work_results(given: str, query: "TableQuery") -> "tuple[Table, str, Sequence[str]]":
    """The work done by a sweep's runs, the sweep's name, and messages about unreadable files."""
    from runmanager.results.findings.roofline import roofline_rows
    from runmanager.results.load.loader import read_results

    paths = find_sweep(given)
    contents, plan = read_results(paths)
    return query.of_table(roofline_rows(contents, plan)), paths.name, [each.message for each in contents.damaged]


def _event_file_results(folder: Path, query: "TableQuery") -> "tuple[Table, str, Sequence[str]]":
    """The results in a folder of event files, the folder's name, and messages about unreadable files."""
    from runmanager.results.tfevents.table import event_rows, read_event_folders

    found = read_event_folders(folder)
    results = query.of_table(event_rows(found))
    return results, folder.resolve().name, [line for each in found.values() for line in each.damage]
