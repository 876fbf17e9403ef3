"""The command that says whether this machine is ready, and how to mend what is not."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.location import OUTPUT_ROOT

if TYPE_CHECKING:
    from runmanager.cli.health import Check

__all__ = ["doctor", "show"]

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(
    output_root: Annotated[Path, typer.Option(help="The folder that sweeps will be written to.")] = OUTPUT_ROOT,
) -> int:
    """Look at versions, devices, cores, folders and space; say what is wrong, and how to mend it.

    Status 0 if nothing is an error, else 1.
    """
    from runmanager.cli.health import machine_checks
    from runmanager.cli.torch_health import torch_checks

    return show([*machine_checks(output_root), *torch_checks()])


def show(checks: Iterable["Check"]) -> int:
    """Print one line a check, its cure below where it is not well; return the exit status."""
    levels = []
    for check in checks:
        levels.append(str(check.level))
        typer.echo(f"{typer.style(f'{check.level:8}', fg=_COLOURS[check.level])} {check.subject:12} {check.finding}")
        if check.cure:
            typer.echo(f"{'':21} cure: {check.cure}")
    errors, warned = levels.count("error"), levels.count("warning")
    typer.echo(f"\n{len(levels)} checks: {errors} errors, {warned} warnings.")
    return 1 if errors else 0
