"""The commands on what is stored: table and compare, computed afresh from the runs on disk each time."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.location import find_sweep
from runmanager.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from runmanager.records.store import Damage
    from runmanager.results.columns import Table

__all__ = ["ComparisonFormat", "TableFormat", "compare", "table"]

_SHOWN_ROWS = 50
_SWEEP = typer.Argument(metavar="SWEEP", help="The sweep's folder, or its name under outputs/.")


class TableFormat(StrEnum):
    """The forms in which a results table can be had."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


class ComparisonFormat(StrEnum):
    """The forms in which a comparison can be had."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"


def table(
    sweep: Annotated[str, _SWEEP],
    show_all: Annotated[bool, typer.Option("--all", help="Every row, not only the first 50; text only.")] = False,
    each: Annotated[
        bool, typer.Option("--each", help="A row a run; without it those that differ in the seed alone are one row.")
    ] = False,
    format_: Annotated[TableFormat, typer.Option("--format", help="Files hold every row and column.")] = (
        TableFormat.TEXT
    ),
    sort: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Best first for accuracies and throughput, else the smallest first."),
    ] = None,
) -> None:
    """Show a sweep's results: one row a run (in text one for all seeds of a cell), the fastest epoch first."""
    from runmanager.cli.sorting import sorted_by
    from runmanager.results import formats
    from runmanager.results.reading import read_summary
    from runmanager.results.table import result_rows

    paths = find_sweep(sweep)
    contents, plan = read_summary(paths)
    results = result_rows(contents, plan)
    if format_ is TableFormat.TEXT and not each:
        from runmanager.results.seeds import collapse_seeds

        results = collapse_seeds(results)
    if sort is not None:
        results = sorted_by(results, sort)
    if format_ is TableFormat.TEXT:
        from runmanager.results.terminal import results_table

        console = _console()
        limit = None if show_all else _SHOWN_ROWS
        _print(_rendered(console, results_table(results, limit=limit, width=console.width)))
    elif format_ is TableFormat.MARKDOWN:
        _print(formats.to_markdown(results))
    elif format_ is TableFormat.HTML:
        _print(formats.to_html(results, title=f"Results of {paths.name}"))
    else:
        _warn_of_damage(contents.damaged)
        _print(formats.to_csv(results) if format_ is TableFormat.CSV else formats.to_json(results))


def compare(
    sweep: Annotated[str, _SWEEP],
    axis: Annotated[
        str | None,
        typer.Option(
            help="The setting or group whose values are compared, several joined by +; any: each that varies. "
            "Default: what the runs took turns for, else device."
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The value to compare against. Default: cpu for device, else the first given.")
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            help="What they are compared by: samples_per_second, epoch_seconds, wall_seconds, run_seconds, "
            "time_to_accuracy=0.95, accuracy, val_accuracy, loss, val_loss, peak_memory_bytes."
        ),
    ] = "samples_per_second",
    crossover: Annotated[
        str | None,
        typer.Option(
            metavar="AXIS",
            help="Say from which value of AXIS on (num_parameters, batch_size, …) which one is ahead.",
        ),
    ] = None,
    drift: Annotated[
        float, typer.Option(help="With few runs a side, no difference up to this share is called one.")
    ] = 0.1,
    show_all: Annotated[bool, typer.Option("--all", help="Every row, not only the first 50; text only.")] = False,
    format_: Annotated[ComparisonFormat, typer.Option("--format", help="Files hold every row and column.")] = (
        ComparisonFormat.TEXT
    ),
) -> None:
    """Compare the runs of a sweep that differ in one setting only, with the noise stated."""
    from runmanager.results import comparison, formats
    from runmanager.results.crossover import crossing_answers
    from runmanager.results.matching import match_sides
    from runmanager.results.reading import read_results
    from runmanager.results.why import why

    if crossover is not None and format_ in (ComparisonFormat.CSV, ComparisonFormat.JSON):
        raise UsageError(f"`--crossover` must go with --format text or markdown, got {format_}; it is a sentence.")
    contents, plan = read_results(find_sweep(sweep))
    options = comparison.CompareOptions(axis=axis, baseline=baseline, metric=metric, drift=drift)
    matches = match_sides(contents, plan, options)
    pairs = comparison.compare_matches(contents, matches, options)
    explained = [*why(matches), *(crossing_answers(matches, crossover, options) if crossover is not None else [])]
    if format_ is ComparisonFormat.TEXT:
        from runmanager.results.sentences import answers
        from runmanager.results.table import result_rows

        _show_pairs(pairs, [*explained, *answers(result_rows(contents, plan), pairs)], show_all=show_all)
    elif format_ is ComparisonFormat.MARKDOWN:
        _print(formats.to_markdown(dataclasses.replace(pairs, notes=(*pairs.notes, *explained))))
    else:
        _warn_of_damage(contents.damaged)
        _print(formats.to_csv(pairs) if format_ is ComparisonFormat.CSV else formats.to_json(pairs))


def _show_pairs(pairs: "Table", said: Sequence[str], *, show_all: bool) -> None:
    from runmanager.results.terminal import comparison_table

    console = _console()
    if pairs.rows:
        limit = None if show_all else _SHOWN_ROWS
        _print(_rendered(console, comparison_table(pairs, limit=limit, width=console.width), *said))
    else:  # a legend would explain columns that are not there
        _print("\n".join([*pairs.notes, *said, ""]))


def _warn_of_damage(damaged: "Sequence[Damage]") -> None:
    """Say on stderr what the tables for people say in a note: rows that are missing from the output."""
    for damage in damaged:
        print(f"warning: not read: {damage.message}", file=sys.stderr)


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)


def _rendered(console: "Console", shown: "RenderableType", *lines: str) -> str:
    with console.capture() as capture:
        console.print(shown)
        if lines:
            console.print()
        for line in lines:
            console.print(line, markup=False)
    return capture.get()


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the table has seen enough (`| head`). Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
