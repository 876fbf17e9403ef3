"""How commands are told which sweep or run they are about."""

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
        help="The run's folder, SWEEP/RUN, or the beginning of its name or of its eight digits.",
        autocompletion=complete_runs,
    ),
]


class RunFormat(StrEnum):
    """The forms in which what is said of runs can be had."""

    TEXT = "text"
    JSON = "json"


RunFormatOption = Annotated[RunFormat, typer.Option("--format", help="JSON has every value in full.")]

TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Give the command even where it imports and calls a `_target_` that the run's files name."
    ),
]


def read_named_run(name: str) -> "StoredRun":
    """The stored run that a command names."""
    from runmanager.records.storage.reader import read_run

    return read_run(find_run(name))
