"""`runmanager scalars`: what a script has printed that can be a metric."""

from typing import Annotated

import typer

from runmanager.cli.arguments import RunFormat, RunFormatOption, complete_targets
from runmanager.cli.printing import print_document, print_text
from runmanager.errors import UsageError
from runmanager.records.files.paths import RunPaths
from runmanager.records.sweep.lookup import find_sweep_or_run


def scalars(
    target: Annotated[
        str,
        typer.Argument(
            metavar="SWEEP|RUN",
            help="A sweep, whose last finished run is read, or a run.",
            autocompletion=complete_targets,
        ),
    ],
    format_: RunFormatOption = RunFormat.TEXT,
) -> None:
    """Show the numbers in run.log that may be metrics, their last values, and the `--scalar` that reads each.

    The command of the sweep, given again with that `--scalar`, searches the output of finished runs; nothing trains
    again.
    """
    from runmanager.app.programs.cell_metrics import logged_numbers
    from runmanager.records.run.metric_names import name_key
    from runmanager.records.storage.reader import read_run, read_sweep
    from runmanager.results.table_model.formatting import Section, format_sections
    from runmanager.text import format_value

    found = find_sweep_or_run(target)
    if isinstance(found, RunPaths):
        run = read_run(found)
    else:
        finished = [each for each in read_sweep(found).runs if each.is_complete]
        if not finished:
            raise UsageError(f"{target} must have a finished run, got none; name one of its runs.")
        run = finished[-1]
    numbers = logged_numbers(run.paths.log, run.record.settings)
    metrics = {name_key(name) for name in run.record.summary or {}}
    if format_ is RunFormat.JSON:
        from runmanager.cli.output_schemas import LoggedNumber

        print_document(
            [
                LoggedNumber(each.name, each.value, each.count, name_key(each.name) in metrics, each.scalar or None)
                for each in numbers
            ]
        )
        return
    if not numbers:
        print_text(f"{run.paths.log} has no named number that may be a metric.\n")
        return
    rows = [
        (
            each.name,
            format_value(each.value),
            str(each.count),
            "yes" if name_key(each.name) in metrics else "no",
            each.option or "none finds it alone in its line",
        )
        for each in numbers
    ]
    headings = ("name", "last", "times", "metric", "to read it")
    print_text(
        format_sections(f"{run.record.name}: {run.record.status}", [Section(str(run.paths.log), rows, headings)])
    )
