"""`runmanager best`: a sweep's best cell."""

from pathlib import PurePath
from typing import Annotated

import typer

from runmanager.cli.arguments import AtOption, BetterOption, RunFormat, RunFormatOption, SweepName, TrustOption
from runmanager.cli.completion import complete_metrics
from runmanager.cli.printing import print_text, print_warning, warn_damaged, wrap_lines
from runmanager.errors import UsageError
from runmanager.records.sweep.lookup import find_sweep

__all__ = ["best"]


def best(
    sweep: SweepName,
    metric: Annotated[
        str | None,
        typer.Option(
            help="The metric: time_to_accuracy=0.95, or any that compare --metric takes. Default: val_accuracy; if no "
            "cell has it, accuracy, val_loss, loss or a logged metric.",
            autocompletion=complete_metrics,
        ),
    ] = None,
    better: BetterOption = None,
    at: AtOption = "last",
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Only among runs that meet it: 'device==cuda and lr<0.1'."),
    ] = None,
    trust: TrustOption = False,
    format_: RunFormatOption = RunFormat.TEXT,
) -> None:
    """Show the best cell by its mean over seeds, how certain that is, its command, and where its weights are."""
    from runmanager.app.reproduce_command import reproduce as command_for
    from runmanager.results.findings.best import find_best
    from runmanager.results.findings.best_text import best_headline, best_sections, best_sentences, best_to_json
    from runmanager.results.load.loader import read_results
    from runmanager.results.table_model.sections import Section, format_sections
    from runmanager.results.tables.query import TableQuery
    from runmanager.results.tables.sorting import sorted_values

    query = TableQuery.parse(where=where)
    paths = find_sweep(sweep)
    contents, plan = read_results(paths)
    selected = query.of_sweep(contents, plan)
    folders = {PurePath(row["run_dir"]).name for row in selected.rows if row["run_dir"] is not None}
    if where is not None and not folders:
        raise UsageError(f"`--where` must hold for a run of {paths.name}, got none: {selected.notes[0]}")
    found = find_best(contents, plan, metric=metric, better=better, at=at, folders=folders)
    runs = [run.record for run, _ in found.winner.runs]
    seeds = sorted_values(run.config.get("seed") for run in runs)
    words, lines = None, list[str]()
    try:
        command = command_for(runs[0], seeds=seeds, shown=found.winner.settings, trust=trust)
        words, lines = command.command, [command.line, *command.remarks]
    except UsageError as refused:
        lines = [str(refused)]
    warn_damaged([each.message for each in contents.damaged])
    if format_ is RunFormat.JSON:
        if words is None:
            print_warning(*lines)
        print_text(best_to_json(found, command=words))
    else:
        sections = [*best_sections(found, trust=trust), Section("Command", lines=lines)]
        introduction = wrap_lines(f"{paths.name}: {best_headline(found)}", "", *best_sentences(found))
        print_text(format_sections(introduction, sections))
