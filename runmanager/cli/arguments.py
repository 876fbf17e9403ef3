"""How commands are told which sweep or run they are about."""

from typing import Annotated

import typer

from runmanager.cli.completion import runs_like, sweeps_like

__all__ = ["RunName", "SweepName"]

SweepName = Annotated[
    str,
    typer.Argument(metavar="SWEEP", help="The sweep's folder, or its name under outputs/.", autocompletion=sweeps_like),
]

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run's folder, SWEEP/RUN, or the beginning of its name or of its eight digits.",
        autocompletion=runs_like,
    ),
]
