"""The Hydra application, called by the commands that run cells."""

from collections.abc import Sequence

import typer

__all__ = ["PASS_THROUGH", "run_application"]

PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""Typer's settings for a command whose arguments are Hydra's business: they come in `ctx.args` as they were given."""


def run_application(ctx: typer.Context, arguments: Sequence[str]) -> int:
    """Hand `arguments` to the Hydra application and return its status; `--help` shows the command's own."""
    if "--help" in ctx.args:
        typer.echo(ctx.get_help())
        return 0
    from runmanager.app.main import main  # torch and Hydra: seconds

    return main([*arguments, "--debug"] if ctx.obj else list(arguments))
