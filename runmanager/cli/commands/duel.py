"""`runmanager duel`: two settings measured against each other, side by side on this machine."""

import datetime
from pathlib import Path
from typing import Annotated

import typer

from runmanager.cli.hydra_application import run_application
from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths

__all__ = ["duel"]

_SIDE = "One or more overrides: 'device=cuda num_workers=2'."
_DEFAULTS = {"name": "", "output_root": "outputs", "epochs": "1"}


def duel(
    ctx: typer.Context,
    one: Annotated[str, typer.Argument(metavar="SIDE", help=_SIDE)],
    other: Annotated[str, typer.Argument(metavar="SIDE", help=_SIDE)],
) -> int:
    """Measure which of two settings trains faster, side by side.

    Both run at the same time and take turns on the machine until the speedup is known within measure.half_width (1%),
    or measure.max_seconds (60) have passed. Further overrides apply to both sides.
    """
    for word in (one, other):
        if "=" not in word or word.startswith("-"):
            raise UsageError(f"A side of a duel must be overrides like device=cuda, got '{word}'.")
    for word in ctx.args:
        if word.startswith("measure=") and word != "measure=paired":
            raise UsageError(f"`measure` must be paired in a duel, got '{word.partition('=')[2]}'; leave it out.")
    chosen = _DEFAULTS | {"name": f"duel-{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"}
    given = [word for word in ctx.args if word.partition("=")[0] in chosen and "=" in word]
    chosen |= {word.partition("=")[0]: word.partition("=")[2] for word in given}
    from runmanager.app.compose.override_quoting import quote_text

    words = [f"{name}={value}" for name, value in chosen.items()]
    sides = f"hydra.sweeper.sides=[{quote_text(one)},{quote_text(other)}]"
    others = [word for word in ctx.args if word not in given]
    status = run_application(ctx, ["-m", "measure=paired", *words, sides, *others])
    folder = SweepPaths(Path(chosen["output_root"]) / chosen["name"])
    if folder.record.exists() and "--dry-run" not in ctx.args:
        typer.echo(_answer(folder))
    return status


def _answer(folder: SweepPaths) -> str:
    from runmanager.results.compare.comparison import compare
    from runmanager.results.findings.answer_sentences import duel_answers
    from runmanager.results.load.loader import read_results

    return "\n".join(duel_answers(compare(*read_results(folder))))
