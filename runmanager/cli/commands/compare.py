"""`runmanager compare`: the runs of a sweep that differ in one setting only, compared."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.arguments import AtOption, BetterOption, SweepName
from runmanager.cli.completion import complete_axes, complete_baselines, complete_crossovers, complete_metrics
from runmanager.cli.printing import console, print_text, print_warning, render, warn_damaged
from runmanager.cli.table_formats import DATA_FORMATS, MAX_TEXT_ROWS, TableFormat, format_table
from runmanager.errors import UsageError
from runmanager.records.sweep.lookup import find_sweep

if TYPE_CHECKING:
    from runmanager.results.compare.comparison_table import ComparisonTable

__all__ = ["compare"]


def compare(
    sweep: SweepName,
    axis: Annotated[
        str | None,
        typer.Option(
            help="The setting or group whose values are compared, several joined by +; any: each that varies. "
            "Default: the axis of a paired sweep, else device, or what varies if no two devices can be compared.",
            autocompletion=complete_axes,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="The value to compare against. Default: cpu for device, else the first value.",
            autocompletion=complete_baselines,
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            help="The metric to compare: samples_per_second, overall_samples_per_second, epoch_seconds, "
            "wall_seconds, run_seconds, time_to_accuracy=0.95, accuracy, val_accuracy, loss, val_loss, "
            "peak_memory_bytes, any logged metric and the time to it (time_to_val/f1=0.8), and tokens_per_second for "
            "any counted unit.",
            autocompletion=complete_metrics,
        ),
    ] = "samples_per_second",
    better: BetterOption = None,
    at: AtOption = "last",
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Only pairs that meet it: 'verdict==faster and batch_size>100'. Intervals hold for all pairs jointly.",
        ),
    ] = None,
    crossover: Annotated[
        str | None,
        typer.Option(
            metavar="AXIS",
            help="Find the value of AXIS (num_parameters, batch_size, …) from which one side is ahead.",
            autocompletion=complete_crossovers,
        ),
    ] = None,
    drift: Annotated[
        float, typer.Option(help="Differences up to this share do not count if one side ran after the other.")
    ] = 0.1,
    margin: Annotated[
        float | None,
        typer.Option(
            help="The largest effect that counts as no difference: a share for ratios (default 0.03), "
            "in their own unit for accuracies, losses and logged metrics.",
            show_default=False,
        ),
    ] = None,
    show_all: Annotated[
        bool,
        typer.Option(
            "--all", help="Show every row: more than the first 50, and shorter runs that longer ones continue."
        ),
    ] = False,
    format_: Annotated[TableFormat, typer.Option("--format", help="Files hold every row and column.")] = (
        TableFormat.TEXT
    ),
) -> None:
    """Compare the runs of a sweep that differ in one setting only, with the noise stated."""
    from runmanager.results.compare import comparison
    from runmanager.results.compare.matched_pairs import match_sides
    from runmanager.results.findings.bottleneck import bottleneck_notes
    from runmanager.results.findings.crossover import crossover_answers
    from runmanager.results.findings.roofline import roofline_lines
    from runmanager.results.load.loader import read_results
    from runmanager.results.tables.query import TableQuery

    if crossover is not None and format_ in DATA_FORMATS:
        raise UsageError(
            f"`--crossover` must go with a format that has sentences, got --format {format_}; use markdown."
        )
    query = TableQuery.parse(where=where)
    paths = find_sweep(sweep)
    contents, plan = read_results(paths)
    options = comparison.CompareOptions(axis, baseline, metric, better=better, at=at, drift=drift, margin=margin)
    matches = match_sides(contents, plan, options)
    if format_ is not TableFormat.TEXT:
        matches = matches.without_stand_in()
    every_pair = comparison.compare_matches(contents, matches, options)
    pairs = query.of_comparison(every_pair)
    sentences = [
        *bottleneck_notes(matches),
        *roofline_lines(matches),
        *(crossover_answers(matches, every_pair, crossover) if crossover is not None else []),
    ]
    if format_ is TableFormat.TEXT:
        from runmanager.results.findings.answer_sentences import answers
        from runmanager.results.tables.results_table import result_rows
        from runmanager.results.tables.shorter_runs import without_shorter_runs

        found = answers(result_rows(contents, plan), pairs, runs=contents.runs)
        shown = pairs if show_all or where is not None else without_shorter_runs(pairs)
        _show_pairs(shown, [*sentences, *found], show_all=show_all)
        return
    if format_ in DATA_FORMATS:
        warn_damaged([each.message for each in contents.damaged])
        if where is not None and not pairs.rows:
            print_warning(pairs.notes[0])
    if format_ in (TableFormat.LATEX, TableFormat.HTML):
        pairs = comparison.with_numbered_reasons(pairs)
    pairs = dataclasses.replace(pairs, notes=(*pairs.notes, *sentences))
    print_text(format_table(pairs, format_, title=f"Comparison of {paths.name}"))


def _show_pairs(pairs: "ComparisonTable", sentences: Sequence[str], *, show_all: bool) -> None:
    from runmanager.results.tables.terminal import render_comparison

    target = console()
    if pairs.rows:
        limit = None if show_all else MAX_TEXT_ROWS
        print_text(render(target, render_comparison(pairs, limit=limit, width=target.width), *sentences))
    else:  # a legend would explain columns that are not there
        print_text("\n".join([*pairs.notes, *sentences, ""]))
