"""`runmanager demo`: a small grid on the built-in digits."""

import datetime
from pathlib import Path

import typer

from runmanager.cli.hydra_application import run_application
from runmanager.records.files.paths import SweepPaths

__all__ = ["demo"]


def demo(ctx: typer.Context) -> int:
    """Run a small grid over CPU and CUDA on the built-in digits, and show the results.

    Takes overrides too.
    """
    overrides = {"name": _fresh_name(), "output_root": "outputs"}
    for argument in ctx.args:
        name, given, value = argument.partition("=")
        if given and name in overrides:
            overrides[name] = value
    defaults = [f"{name}={value}" for name, value in overrides.items()]
    others = [argument for argument in ctx.args if argument.partition("=")[0] not in overrides]
    status = run_application(ctx, ["experiment=digits_quick", *defaults, "--yes", *others])
    folder = SweepPaths(Path(overrides["output_root"]) / overrides["name"])
    if folder.record.exists():
        # The application has already printed the report's path and the TensorBoard command.
        from runmanager.app.driver.run_listener import command_name

        table = f"{command_name()} table {folder.root}"
        typer.echo(f"\nAll files are in {folder.root}. To show the table again: {table}")
    return status


def _fresh_name() -> str:
    return f"demo-{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"
