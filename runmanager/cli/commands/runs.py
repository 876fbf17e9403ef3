"""The commands on single stored runs: show, diff, reproduce, and best, which finds one."""

from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.arguments import RunName, SweepName
from runmanager.cli.completion import metrics_like
from runmanager.cli.printing import print_text, print_warning, prose, warn_of_damage
from runmanager.errors import UsageError
from runmanager.records.sweep.lookup import find_run, find_sweep

if TYPE_CHECKING:
    from runmanager.records.run.record import Environment
    from runmanager.records.storage.reader import StoredRun

__all__ = ["RunFormat", "best", "diff", "reproduce", "show"]

_SHORT_COMMIT = 10


class RunFormat(StrEnum):
    """The forms in which what is said of runs can be had."""

    TEXT = "text"
    JSON = "json"


_FORMAT = typer.Option("--format", help="JSON has every value in full.")
_TRUST = typer.Option(
    "--trust", help="Give the command even where it imports and calls a `_target_` that the run's files name."
)


def show(run: RunName) -> None:
    """Show everything about one run: settings, state, epochs, times, environment, notes, files, log and error."""
    from runmanager.results.model.sections import format_sections
    from runmanager.results.report.run_details import run_headline, run_sections

    stored = _read(run)
    print_text(format_sections(run_headline(stored), run_sections(stored)))


def diff(one: RunName, other: RunName, format_: Annotated[RunFormat, _FORMAT] = RunFormat.TEXT) -> None:
    """Show what differs between two runs: settings, code, packages, hardware, metrics. What is the same is left out."""
    from runmanager.results.findings.run_diff import diff_runs, difference_sections, difference_to_json
    from runmanager.results.model.sections import format_sections

    sides = _read(one), _read(other)
    if format_ is RunFormat.JSON:
        print_text(difference_to_json(*sides))
        return
    found = diff_runs(*sides)
    first = "\n".join(f"{name}: {side.paths.root}" for name, side in zip(("one", "other"), sides, strict=True))
    if not found:
        print_text(f"{first}\n\nNothing differs.\n")
        return
    print_text(format_sections(first, difference_sections(found, names=("one", "other"))))
    if any(each.kind == "metrics" for each in found):
        said = "Of one run each, so a difference may be noise; `runmanager compare` says which is more."
        print_text(f"\n{prose(said)}\n")


def reproduce(run: RunName, trust: Annotated[bool, _TRUST] = False) -> None:
    """Show the command that makes a run again, and what of code, packages and hardware is another here today."""
    from runmanager.app.reproducing import current_environment
    from runmanager.app.reproducing import reproduce as command_for
    from runmanager.results.findings.run_diff import diff_environments, difference_sections
    from runmanager.results.model.sections import format_sections

    record = _read(run).record
    reproduction = command_for(record, trust=trust)
    proved = [f"It gives the run's own signature, {record.signature[:8]}, with today's code."]
    said = [*(proved if reproduction.is_proved else ()), *reproduction.remarks]
    then = record.environment
    today = current_environment(then)
    if then.commit_clean is False:
        said.append("It was made with uncommitted changes, which nobody kept: its commit alone is not its code.")
    differences = diff_environments(then, today)
    if any(each.name == "Commit" for each in differences) and then.commit:
        said.append(f"Its code: git checkout {then.commit[:_SHORT_COMMIT]}")
    said.append(_said_of_code(then, today))
    if not differences:
        said.append("Packages and hardware are as they were.")
    sections = difference_sections(differences, names=("then", "today"))
    print_text(format_sections(f"{reproduction.line}\n\n{prose(*said)}", sections))


def _said_of_code(then: "Environment", today: "Environment") -> str:
    """Whether the run's code is still the same: changed, the same, or not known."""
    from runmanager.records.run.environment_changes import changed_files, describe_files, is_same_code

    if then.code == {}:
        return "It ran no code of your own."
    if files := changed_files((then, today)):
        return f"Its code has changed since: {describe_files(files)}."
    if is_same_code(then, today):
        return "Its code is the same."
    why = "the run did not record it" if then.code is None else "its files are not found from this folder"
    return f"Whether its code is the same is not known: {why}."


def best(
    sweep: SweepName,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What is best: time_to_accuracy=0.95, or what compare --metric takes. Default: val_accuracy; where no "
            "cell has one, accuracy, val_loss or loss.",
            autocompletion=metrics_like,
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Among the runs for which it holds: 'device==cuda and lr<0.1'."),
    ] = None,
    trust: Annotated[bool, _TRUST] = False,
    format_: Annotated[RunFormat, _FORMAT] = RunFormat.TEXT,
) -> None:
    """Show the best cell by its mean over seeds, how sure that is, its command, and where its weights are."""
    from runmanager.app.reproducing import reproduce as command_for
    from runmanager.results.findings.best import find_best
    from runmanager.results.findings.best_text import best_headline, best_sections, best_sentences, best_to_json
    from runmanager.results.load.loader import read_results
    from runmanager.results.model.sections import Section, format_sections
    from runmanager.results.tables.query import TableQuery
    from runmanager.results.tables.sorting import sorted_values

    query = TableQuery.parse(where=where)
    paths = find_sweep(sweep)
    contents, plan = read_results(paths)
    meant = query.of_sweep(contents, plan)
    folders = {PurePath(row["run_dir"]).name for row in meant.rows if row["run_dir"] is not None}
    if where is not None and not folders:
        raise UsageError(f"`--where` must hold for a run of {paths.name}, got none: {meant.notes[0]}")
    found = find_best(contents, plan, metric=metric, folders=folders)
    runs = [run.record for run, _ in found.winner.runs]
    seeds = sorted_values(run.config.get("seed") for run in runs)
    words, lines = None, list[str]()
    try:
        command = command_for(runs[0], seeds=seeds, told=found.winner.settings, trust=trust)
        words, lines = command.command, [command.line, *command.remarks]
    except UsageError as refused:
        lines = [str(refused)]
    warn_of_damage([each.message for each in contents.damaged])
    if format_ is RunFormat.JSON:
        if words is None:
            print_warning(*lines)
        print_text(best_to_json(found, command=words))
    else:
        said = [*best_sections(found, trust=trust), Section("Command", lines=lines)]
        print_text(format_sections(prose(f"{paths.name}: {best_headline(found)}", "", *best_sentences(found)), said))


def _read(name: str) -> "StoredRun":
    from runmanager.records.storage.reader import read_run

    return read_run(find_run(name))
