"""`runmanager sweep`: every combination of the settings."""

import typer

from runmanager.cli.hydra_application import run_application

__all__ = ["sweep"]


def sweep(ctx: typer.Context) -> int:
    """Run every combination of the settings; commas separate the values of each.

    The same as `python -m runmanager -m OVERRIDES`. `--cfg job` prints the settings, `--hydra-help` explains Hydra's
    own flags, `--dry-run` runs nothing.
    """
    return run_application(ctx, ["-m", *ctx.args])
