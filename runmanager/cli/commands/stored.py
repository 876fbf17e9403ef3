"""The commands on what is stored: table and compare, computed afresh from the runs on disk each time."""

import dataclasses
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.arguments import SweepName
from runmanager.cli.completion import axes_like, baselines_like, columns_like, crossovers_like, metrics_like
from runmanager.cli.printing import console, print_text, print_warning, rendered, warn_of_damage
from runmanager.errors import UsageError
from runmanager.records.sweep.lookup import find_sweep

if TYPE_CHECKING:
    from runmanager.results.compare.comparison_table import ComparisonTable
    from runmanager.results.model.columns import Table
    from runmanager.results.tables.query import TableQuery

__all__ = ["TableFormat", "compare", "table"]

_SHOWN_ROWS = 50


class TableFormat(StrEnum):
    """The forms in which a table can be had."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"
    LATEX = "latex"
    HTML = "html"


_FOR_PROGRAMS = (TableFormat.CSV, TableFormat.JSON)
"""Those that have rows and nothing else: what is to be said beside them goes to stderr."""


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
            autocompletion=columns_like,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C", help="These columns or settings alone, in every format.", autocompletion=columns_like
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
    from runmanager.results.tables.query import TableQuery

    for name, given in (("--events", events), ("--work", work)):
        if given and each:
            raise UsageError(f"`--each` must go without {name}, got both; there is a row for each as it is.")
    if events and work:
        raise UsageError("`--work` must go without --events, got both; other programs' event files hold none.")
    query = TableQuery.parse(where=where, sort=sort, columns=columns, pivot=pivot, each=each)
    if events:
        results, name, damaged = _of_events(Path(sweep), query)
    elif work:
        results, name, damaged = _of_work(sweep, query)
    else:
        results, name, damaged = _of_sweep(sweep, query, collapses=format_ is TableFormat.TEXT)
    if format_ in _FOR_PROGRAMS:
        warn_of_damage(damaged)
        if query.where is not None and not results.rows:
            print_warning(results.notes[0])
    if format_ is TableFormat.TEXT:
        _show_results(results, limit=None if show_all else _SHOWN_ROWS)
    else:
        print_text(_in_format(results, format_, title=f"Results of {name}"))


def _show_results(results: "Table", *, limit: int | None) -> None:
    from runmanager.results.tables.terminal import render_results

    where = console()
    print_text(rendered(where, render_results(results, limit=limit, width=where.width)))


def _in_format(shown: "Table", format_: TableFormat, *, title: str) -> str:
    """A table as a file of that format holds it."""
    from runmanager.results.tables import writers

    match format_:
        case TableFormat.CSV:
            return writers.to_csv(shown)
        case TableFormat.JSON:
            return writers.to_json(shown)
        case TableFormat.LATEX:
            return writers.to_latex(shown)
        case TableFormat.HTML:
            from runmanager.results.report.html import to_html

            return to_html(shown, title=title)
    return writers.to_markdown(shown)


def _of_sweep(given: str, query: "TableQuery", *, collapses: bool) -> "tuple[Table, str, Sequence[str]]":
    """What is asked for of a sweep's results, its name, and what could not be read."""
    from runmanager.results.load.loader import read_summary

    paths = find_sweep(given)
    summary, plan = read_summary(paths)
    results = query.of_sweep(summary, plan, collapses=collapses)
    return results, paths.name, [each.message for each in summary.damaged]


def _of_work(given: str, query: "TableQuery") -> "tuple[Table, str, Sequence[str]]":
    """The same of the work that its runs have done."""
    from runmanager.results.findings.roofline import roofline_rows
    from runmanager.results.load.loader import read_results

    paths = find_sweep(given)
    contents, plan = read_results(paths)
    return query.of_table(roofline_rows(contents, plan)), paths.name, [each.message for each in contents.damaged]


def _of_events(folder: Path, query: "TableQuery") -> "tuple[Table, str, Sequence[str]]":
    """The same of a folder of event files."""
    from runmanager.results.tfevents.table import event_rows, read_event_folders

    found = read_event_folders(folder)
    results = query.of_table(event_rows(found))
    return results, folder.resolve().name, [line for each in found.values() for line in each.damage]


def compare(
    sweep: SweepName,
    axis: Annotated[
        str | None,
        typer.Option(
            help="The setting or group whose values are compared, several joined by +; any: each that varies. "
            "Default: what the runs took turns for, else device, or what varies where no two devices can be compared.",
            autocompletion=axes_like,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="The value to compare against. Default: cpu for device, else the first given.",
            autocompletion=baselines_like,
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            help="What they are compared by: samples_per_second, overall_samples_per_second, epoch_seconds, "
            "wall_seconds, run_seconds, time_to_accuracy=0.95, accuracy, val_accuracy, loss, val_loss, "
            "peak_memory_bytes.",
            autocompletion=metrics_like,
        ),
    ] = "samples_per_second",
    crossover: Annotated[
        str | None,
        typer.Option(
            metavar="AXIS",
            help="Say from which value of AXIS on (num_parameters, batch_size, …) which one is ahead.",
            autocompletion=crossovers_like,
        ),
    ] = None,
    drift: Annotated[
        float, typer.Option(help="Where one side ran after the other, no difference up to this share is called one.")
    ] = 0.1,
    margin: Annotated[
        float | None,
        typer.Option(
            help="The largest effect that counts as no difference: a share of ratios (0.03 where not given), "
            "of accuracies and losses in their own unit.",
            show_default=False,
        ),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Every row, not only the first 50; files have all.")] = False,
    format_: Annotated[TableFormat, typer.Option("--format", help="Files hold every row and column.")] = (
        TableFormat.TEXT
    ),
) -> None:
    """Compare the runs of a sweep that differ in one setting only, with the noise stated."""
    from runmanager.results.compare import comparison
    from runmanager.results.compare.matching import match_sides
    from runmanager.results.findings.bottleneck import bottleneck_notes
    from runmanager.results.findings.crossover import crossover_answers
    from runmanager.results.findings.roofline import roofline_lines
    from runmanager.results.load.loader import read_results

    if crossover is not None and format_ in _FOR_PROGRAMS:
        raise UsageError(f"`--crossover` must go with a format for people, got --format {format_}; it is a sentence.")
    paths = find_sweep(sweep)
    contents, plan = read_results(paths)
    options = comparison.CompareOptions(axis=axis, baseline=baseline, metric=metric, drift=drift, margin=margin)
    matches = match_sides(contents, plan, options)
    if format_ is not TableFormat.TEXT:
        matches = matches.without_stand_in()
    pairs = comparison.compare_matches(contents, matches, options)
    explained = [
        *bottleneck_notes(matches),
        *roofline_lines(matches),
        *(crossover_answers(matches, pairs, crossover) if crossover is not None else []),
    ]
    if format_ is TableFormat.TEXT:
        from runmanager.results.findings.answers import answers
        from runmanager.results.tables.results_table import result_rows

        _show_pairs(pairs, [*explained, *answers(result_rows(contents, plan), pairs)], show_all=show_all)
        return
    if format_ in _FOR_PROGRAMS:
        warn_of_damage([each.message for each in contents.damaged])
    if format_ in (TableFormat.LATEX, TableFormat.HTML):
        pairs = comparison.with_numbered_reasons(pairs)
    told = dataclasses.replace(pairs, notes=(*pairs.notes, *explained))
    print_text(_in_format(told, format_, title=f"Comparison of {paths.name}"))


def _show_pairs(pairs: "ComparisonTable", said: Sequence[str], *, show_all: bool) -> None:
    from runmanager.results.tables.terminal import render_comparison

    where = console()
    if pairs.rows:
        limit = None if show_all else _SHOWN_ROWS
        print_text(rendered(where, render_comparison(pairs, limit=limit, width=where.width), *said))
    else:  # a legend would explain columns that are not there
        print_text("\n".join([*pairs.notes, *said, ""]))
