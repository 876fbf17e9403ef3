"""`runmanager best`: the best cell of one sweep, or of several."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.arguments import (
    AtOption,
    BetterOption,
    RunFormat,
    RunFormatOption,
    SweepNames,
    TrustOption,
    complete_metrics,
)
from runmanager.cli.printing import print_document, print_text, print_warning, warn_damaged, wrap_lines
from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.sweep.lookup import find_sweep

if TYPE_CHECKING:
    from runmanager.results.findings.best import BestCell
    from runmanager.results.metrics.metric import At
    from runmanager.results.tables.query import TableQuery


def best(
    sweeps: SweepNames,
    metric: Annotated[
        str | None,
        typer.Option(
            help="The metric: time_to_accuracy=0.95, or any that compare --metric takes. Default: the one that "
            "the sweep was given, else one of validation (val_accuracy first), of a test, or of training.",
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
    from runmanager.app.programs.cell_metrics import advice_without_metrics
    from runmanager.app.reproduce_command import reproduce as command_for
    from runmanager.results.findings.best import NoMetricError
    from runmanager.results.findings.best_text import best_document, best_headline, best_sections, best_sentences
    from runmanager.results.load.loader import read_results
    from runmanager.results.load.several_sweeps import SWEEP, name_sweeps
    from runmanager.results.table_model.formatting import Section, format_sections
    from runmanager.results.tables.query import TableQuery

    query = TableQuery.parse(where=where)
    named = name_sweeps([find_sweep(each) for each in sweeps])
    find = _best_of_several if len(named) > 1 else _best_of_one
    try:
        found, damaged = find(list(named.values()), query, metric=metric, better=better, at=at)
    except NoMetricError as error:
        stored = [run for paths in named.values() for run in read_results(paths)[0].runs]
        raise NoMetricError(" ".join([str(error), *advice_without_metrics(stored)])) from None
    runs = [run for run, _ in found.winner.runs]
    seeds = [found.winner.side.seeds_of(run) for run in runs]
    words, line, remarks = None, list[str](), list[str]()
    try:
        shown = [name for name in found.winner.settings if len(named) == 1 or name != SWEEP]
        command = command_for(runs[0].record, seeds=seeds, shown=shown, trust=trust)
        words, line, remarks = command.command, [command.line], list(command.remarks)
    except UsageError as refused:
        remarks = [str(refused)]
    warn_damaged(damaged)
    if format_ is RunFormat.JSON:
        if words is None:
            print_warning(*remarks)
        print_document(best_document(found, command=words))
    else:
        lines = [*line, *wrap_lines(*remarks, indent=2).splitlines()]
        sections = [*best_sections(found, trust=trust), Section("Command", lines=lines)]
        introduction = wrap_lines(f"{', '.join(named)}: {best_headline(found)}", "", *best_sentences(found))
        print_text(format_sections(introduction, sections))


def _best_of_one(
    sweeps: Sequence[SweepPaths], query: "TableQuery", *, metric: str | None, better: str | None, at: "At"
) -> "tuple[BestCell, Sequence[str]]":
    """The best cell of a sweep, and messages about unreadable files."""
    from runmanager.results.findings.best import find_best
    from runmanager.results.load.loader import read_results

    (paths,) = sweeps
    contents, plan = read_results(paths)
    selected = query.of_sweep(contents, plan)
    folders = {paths.root / row["run_dir"] for row in selected.rows if row["run_dir"] is not None}
    _require_some(folders, query, paths.name, selected.notes)
    found = find_best(contents, plan, metric=metric, better=better, at=at, folders=folders)
    return found, [each.message for each in contents.damaged]


def _best_of_several(
    sweeps: Sequence[SweepPaths], query: "TableQuery", *, metric: str | None, better: str | None, at: "At"
) -> "tuple[BestCell, Sequence[str]]":
    """The best cell of several sweeps, and messages about unreadable files."""
    from runmanager.records.storage.reader import SweepContents
    from runmanager.results.findings.best import find_best
    from runmanager.results.load.several_sweeps import cells_of_sweeps, read_sweeps

    cells, runs, damaged = cells_of_sweeps(sweeps)
    folders = None
    if query.where is not None:
        selected = query.of_sweeps(read_sweeps(sweeps))
        folders = {Path(row["run_dir"]) for row in selected.rows if row["run_dir"] is not None}
        _require_some(folders, query, "these sweeps", selected.notes)
    contents = SweepContents(sweeps[0], runs, damaged)
    found = find_best(contents, None, metric=metric, better=better, at=at, folders=folders, cells=cells)
    return found, [each.message for each in damaged]


def _require_some(folders: Collection[Path], query: "TableQuery", where: str, notes: Sequence[str]) -> None:
    if query.where is not None and not folders:
        raise UsageError(f"`--where` must hold for a run of {where}, got none: {notes[0]}")
