"""`runmanager demo`: a small grid on the built-in digits."""

import typer

from runmanager.cli.hydra_application import run_application
from runmanager.records.files.paths import dated_name

__all__ = ["demo"]


def demo(ctx: typer.Context) -> int:
    """Run a small grid over learning rates, CPU and CUDA on the built-in digits, and show the results.

    On a machine without CUDA it compares the learning rates. Takes overrides too.
    """
    overrides = {"name": dated_name("demo"), "output_root": "outputs"}
    for argument in ctx.args:
        name, given, value = argument.partition("=")
        if given and name in overrides:
            overrides[name] = value
    defaults = [f"{name}={value}" for name, value in overrides.items()]
    others = [argument for argument in ctx.args if argument.partition("=")[0] not in overrides]
    return run_application(ctx, ["experiment=digits_quick", *defaults, "--yes", *others])
