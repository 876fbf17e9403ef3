"""`runmanager adopt`: results that were made without runmanager become a sweep."""

from pathlib import Path
from typing import Annotated

import typer

from runmanager.cli.printing import print_text, print_warning
from runmanager.errors import ConfigurationError
from runmanager.records.files.paths import SweepPaths, storage_faults
from runmanager.records.sweep.lookup import OUTPUT_ROOT, command_on
from runmanager.text import in_backticks, pluralize


def adopt(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A multirun or single runs of Hydra, or any folder with event files or metrics.csv."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="The sweep's name. Default: the name of DIR.")] = None,
    output_root: Annotated[str, typer.Option(metavar="PATH", help="The folder of the sweep.")] = str(OUTPUT_ROOT),
    metric: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Only these metrics; patterns like 'val*' too. Default: all.")
    ] = None,
) -> None:
    """Make a sweep of results of other programs, for table, compare and report. The results stay where they are."""
    from runmanager.app.adopt.adopt_folder import adopt_folder, default_name
    from runmanager.results.result_files import write_tables

    chosen = default_name(folder) if name is None else name
    if faults := storage_faults(chosen, output_root, lambda setting: f"--{setting.replace('_', '-')}"):
        raise ConfigurationError(faults)
    wanted = [] if metric is None else [word for word in map(str.strip, metric.split(",")) if word]
    done = adopt_folder(folder, SweepPaths(Path(output_root, chosen)), metrics=wanted)
    write_tables(done.paths)
    for note in done.notes:
        print_warning(note)
    if done.renamed:
        names = ", ".join(f"{name} is named {column}" for name, column in done.renamed.items())
        print_text(f"{names} here, as that is what it means.\n")
    states = ", ".join(f"{count:,} {status}" for status, count in done.counts.items())
    runs = pluralize(sum(done.counts.values()), "run")
    shown_by = in_backticks(command_on(done.paths, "table"))
    print_text(f"{done.paths.root}: {runs} adopted ({states}). {shown_by} shows them.\n")
