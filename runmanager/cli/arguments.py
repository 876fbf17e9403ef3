"""Arguments and options that several commands share: a sweep, a run, a metric's direction and epoch, the format."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from runmanager.cli.completion import complete_runs, complete_sweeps, complete_targets
from runmanager.errors import UsageError
from runmanager.records.sweep.lookup import find_run
from runmanager.text import shell_quote

if TYPE_CHECKING:
    from runmanager.records.storage.reader import StoredRun

__all__ = [
    "AtOption",
    "BetterOption",
    "RunFormat",
    "RunFormatOption",
    "RunName",
    "RunSettings",
    "SweepName",
    "SweepNames",
    "Target",
    "TrustOption",
    "read_named_run",
]

SweepName = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP", help="The sweep's folder, or its name under outputs/.", autocompletion=complete_sweeps
    ),
]

SweepNames = Annotated[
    list[str],
    typer.Argument(
        metavar="SWEEP",
        help="The folder of a sweep, or its name under outputs/; several are shown together.",
        autocompletion=complete_sweeps,
    ),
]

Target = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP|RUN",
        help="A sweep or a run: a folder, a sweep's name under outputs/, SWEEP/RUN, or the first characters of a run.",
        autocompletion=complete_targets,
    ),
]

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run's folder, SWEEP/RUN, or the first characters of its name or of its eight-digit signature; "
        "RUN may also be some of its settings, as in first/lr=0.1.",
        autocompletion=complete_runs,
    ),
]

RunSettings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME=VALUE]...", help="Settings of the run, after a SWEEP.", show_default=False),
]


BetterOption = Annotated[
    str | None,
    typer.Option(
        metavar="max|min",
        help="Whether larger (max) or smaller (min) values of the metric are better. Default: as the runs declare, "
        "else by its name.",
    ),
]

AtOption = Annotated[
    Literal["last", "best"],
    typer.Option(help="The epoch of each run that counts for a metric of epochs; the best one flatters the result."),
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


def read_named_run(name: str, settings: Sequence[str] | None = None) -> "StoredRun":
    """Read the stored run that a command names: a run, or a sweep and settings of one of its runs.

    Raises `UsageError` if no run or several match.
    """
    from runmanager.records.storage.reader import read_run

    if odd := next((word for word in settings or () if "=" not in word), None):
        raise UsageError(
            f"A run must be named as RUN, SWEEP/RUN or SWEEP NAME=VALUE, got '{odd}' after '{name}'; "
            f"write {shell_quote('/'.join([name, odd]))}."
        )
    return read_run(find_run("/".join([name, ",".join(settings)]) if settings else name))
