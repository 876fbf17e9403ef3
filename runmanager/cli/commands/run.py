"""`runmanager run`: one combination of the settings."""

import typer

from runmanager.cli.hydra_application import run_application

__all__ = ["run"]


def run(ctx: typer.Context) -> int:
    """Run one combination of the settings.

    The same as `python -m runmanager OVERRIDES`. `--cfg job` prints the settings, `--hydra-help` explains Hydra's own
    flags, `--dry-run` runs nothing. A preset that holds a grid is a sweep here too.
    """
    return run_application(ctx, ctx.args)
