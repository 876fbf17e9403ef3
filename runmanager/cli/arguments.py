"""How commands are told which sweep or run they are about, and what a shell offers to complete it with."""

from typing import Annotated

import typer

from runmanager.records.location import known_runs, known_sweeps

__all__ = ["RunName", "SweepName"]


def _sweeps_like(incomplete: str) -> list[str]:
    return [name for name in known_sweeps() if name.startswith(incomplete)]


def _runs_like(incomplete: str) -> list[str]:
    """SWEEP/RUN, or the eight digits of a run where digits were begun."""
    runs = known_runs()
    digits = [name.rpartition("-")[2] for name in runs]
    return [name for name in (*runs, *digits) if incomplete and name.startswith(incomplete)] or (
        [] if incomplete else runs
    )


SweepName = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP", help="The sweep's folder, or its name under outputs/.", autocompletion=_sweeps_like
    ),
]

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run's folder, SWEEP/RUN, or the beginning of its name or of its eight digits.",
        autocompletion=_runs_like,
    ),
]
