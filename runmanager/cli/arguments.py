"""Arguments and options that several commands share: a sweep, a run, the output format, trust."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.completion import complete_runs, complete_sweeps
from runmanager.records.sweep.lookup import find_run

if TYPE_CHECKING:
    from runmanager.records.storage.reader import StoredRun

__all__ = ["RunFormat", "RunFormatOption", "RunName", "SweepName", "TrustOption", "read_named_run"]

SweepName = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP", help="The sweep's folder, or its name under outputs/.", autocompletion=complete_sweeps
    ),
]

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run's folder, SWEEP/RUN, or the first characters of its name or of its eight-digit signature.",
        autocompletion=complete_runs,
    ),
]


class RunFormat(StrEnum):
    """Output formats of commands on single runs."""

    TEXT = "text"
    JSON = "json"


RunFormatOption = Annotated[RunFormat, typer.Option("--format", help="JSON has every value in full.")]

TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Print the command even if it imports and calls a `_target_` that the run's files name."
    ),
]


def read_named_run(name: str) -> "StoredRun":
    """Read the stored run that a command names. Raises `UsageError` if no run or several match."""
    from runmanager.records.storage.reader import read_run

    return read_run(find_run(name))
