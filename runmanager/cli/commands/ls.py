"""`runmanager ls`, `show` and `diff`: what is stored of sweeps and of runs."""

import time
from pathlib import Path
from typing import Annotated

import typer

from runmanager.cli.arguments import BetterOption, RunFormat, RunFormatOption, RunName, RunSettings, read_named_run
from runmanager.cli.printing import (
    DATA_FORMATS,
    TableFormat,
    console,
    max_text_rows,
    print_document,
    print_rendered,
    print_table,
    print_text,
    print_warning,
    warn_damaged,
    wrap_lines,
)
from runmanager.errors import UsageError
from runmanager.records.files.file_errors import require_current_folder
from runmanager.records.sweep.lookup import OUTPUT_ROOT
from runmanager.text import printable_line


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


def diff(one: RunName, other: RunName, format_: RunFormatOption = RunFormat.TEXT) -> None:
    """Show what differs between two runs: settings, code, packages, hardware, metrics. Equal values are left out."""
    from runmanager.results.findings.run_diff import diff_runs, difference_document, difference_sections
    from runmanager.results.table_model.formatting import format_sections

    sides = read_named_run(one), read_named_run(other)
    if format_ is RunFormat.JSON:
        print_document(difference_document(*sides))
        return
    found = diff_runs(*sides)
    roots = (printable_line(str(side.paths.root)) for side in sides)
    first = "\n".join(f"{name}: {root}" for name, root in zip(("one", "other"), roots, strict=True))
    if not found:
        print_text(f"{first}\n\nNothing differs.\n")
        return
    print_text(format_sections(first, difference_sections(found, names=("one", "other"))))
    if any(each.is_measured for each in found):
        caution = "One run each, so a difference may be noise; `runmanager compare` shows which differences are not."
        print_text(f"\n{wrap_lines(caution)}\n")


def show(
    run: RunName,
    settings: RunSettings = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show every setting, measurement and fact of the environment.")
    ] = False,
    format_: RunFormatOption = RunFormat.TEXT,
) -> None:
    """Show one run: its state, settings, epochs, times, environment, notes, files, log and error."""
    from runmanager.results.report.run_details import run_headline, run_sections
    from runmanager.results.table_model.formatting import format_sections

    stored = read_named_run(run, settings)
    if format_ is RunFormat.JSON:
        from runmanager.cli.output_schemas import ShownRun

        print_document(ShownRun(str(stored.paths.root), stored.record, list(stored.epochs)))
        return
    print_text(format_sections(run_headline(stored), run_sections(stored, shows_all=show_all)))
    if not show_all:
        print_text("\n--all shows every setting, measurement and fact of the environment.\n")
