"""Call of the Hydra application by the commands that run cells."""

from collections.abc import Sequence

import typer

__all__ = ["PASS_THROUGH", "run_application"]

PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""Typer's settings for a command that passes its arguments to Hydra: `ctx.args` has them unchanged."""


def run_application(ctx: typer.Context, arguments: Sequence[str]) -> int:
    """Run the Hydra application with `arguments` and return its exit status; `--help` prints the command's help."""
    if "--help" in ctx.args:
        typer.echo(ctx.get_help())
        return 0
    from runmanager.app.hydra_main import main  # imports Hydra, which is slow

    return main([*arguments, "--debug"] if ctx.obj else list(arguments))
