"""The commands that run something: sweep, run and demo hand their overrides on to the Hydra application."""

import datetime
from collections.abc import Sequence
from pathlib import Path

import typer

from runmanager.records.files.paths import SweepPaths

__all__ = ["PASS_THROUGH", "demo", "launch", "run", "sweep"]

PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""Typer's settings for a command whose arguments are Hydra's business: they come in `ctx.args` as they were given."""


def sweep(ctx: typer.Context) -> int:
    """Run every combination of the settings, a comma between the values of each.

    The same as `python -m runmanager -m OVERRIDES`. `--cfg job` prints the settings, `--hydra-help` explains Hydra's
    own flags, `--dry-run` runs nothing.
    """
    return launch(ctx, ["-m", *ctx.args])


def run(ctx: typer.Context) -> int:
    """Run one combination of the settings.

    The same as `python -m runmanager OVERRIDES`. `--cfg job` prints the settings, `--hydra-help` explains Hydra's own
    flags, `--dry-run` runs nothing. A preset that holds a grid is a sweep here too.
    """
    return launch(ctx, ctx.args)


def demo(ctx: typer.Context) -> int:
    """Run a small grid over CPU and CUDA on the built-in digits, and show what came out.

    Takes overrides too.
    """
    overrides = {"name": _fresh_name(), "output_root": "outputs"}
    for argument in ctx.args:
        name, given, value = argument.partition("=")
        if given and name in overrides:
            overrides[name] = value
    defaults = [f"{name}={value}" for name, value in overrides.items()]
    others = [argument for argument in ctx.args if argument.partition("=")[0] not in overrides]
    status = launch(ctx, ["experiment=digits_quick", *defaults, "--yes", *others])
    folder = SweepPaths(Path(overrides["output_root"]) / overrides["name"])
    if folder.record.exists():
        # The application has just said where the report is, and the TensorBoard command.
        from runmanager.app.driver.run_listener import command_name

        again = f"{command_name()} table {folder.root}"
        typer.echo(f"\nAll files lie in {folder.root}. The table again, at any time: {again}")
    return status


def _fresh_name() -> str:
    return f"demo-{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"


def launch(ctx: typer.Context, arguments: Sequence[str]) -> int:
    """Hand `arguments` to the Hydra application and return its status; `--help` shows the command's own."""
    if "--help" in ctx.args:
        typer.echo(ctx.get_help())
        return 0
    from runmanager.app.main import main  # torch and Hydra: seconds

    return main([*arguments, "--debug"] if ctx.obj else list(arguments))
