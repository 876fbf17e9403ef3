"""`runmanager ls`: all sweeps of a folder."""

import time
from pathlib import Path
from typing import Annotated

import typer

from runmanager.cli.arguments import BetterOption
from runmanager.cli.printing import console, print_rendered, print_warning, warn_damaged
from runmanager.cli.table_formats import DATA_FORMATS, TableFormat, max_text_rows, print_table
from runmanager.errors import UsageError
from runmanager.records.files.file_errors import require_current_folder
from runmanager.records.sweep.lookup import OUTPUT_ROOT

__all__ = ["ls"]


def ls(
    root: Annotated[Path, typer.Argument(metavar="ROOT", help="A folder; the sweeps below it are listed.")] = (
        OUTPUT_ROOT
    ),
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Only sweeps that meet it: 'failed>0 or paper in tags'.")
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Smallest first; `best` best first. Default: newest first.")
    ] = None,
    better: BetterOption = None,
    columns: Annotated[str | None, typer.Option(metavar="A,B,C", help="Only these columns, in every format.")] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show every sweep, in a terminal not only the first 50.")
    ] = False,
    format_: Annotated[TableFormat, typer.Option("--format", help="Files hold every row and column.")] = (
        TableFormat.TEXT
    ),
) -> None:
    """List sweeps: when, cells by state, axes, best metric, size on disk, labels and command."""
    from runmanager.results.tables.query import TableQuery
    from runmanager.results.tables.sweep_listing import list_sweeps, listing
    from runmanager.results.tables.terminal import render_listing

    query = TableQuery.parse(where=where, sort=sort, columns=columns, better=better)
    if not root.is_dir():
        require_current_folder()
        if root != OUTPUT_ROOT:
            got = "a file" if root.exists() else "nothing there"
            raise UsageError(f"ROOT must be a folder, got '{root}': {got}.")
    notes: list[str] = []
    found = list_sweeps(root, notes, now_ns=time.time_ns()) if root.is_dir() else []
    if not found:
        notes.append(f"There is no sweep in {root}/ yet; `runmanager demo` makes one.")
    table = query.of_table(listing(found, notes=notes))
    if format_ is TableFormat.TEXT:
        target = console()
        limit = max_text_rows(show_all=show_all)
        print_rendered(target, render_listing(table, limit=limit, width=target.width))
        return
    if format_ in DATA_FORMATS:
        warn_damaged(damage.message for each in found for damage in each.sweep.summary.damaged)
        for note in notes:
            print_warning(note)
    print_table(table, format_, title=f"Sweeps in {root}")
