"""The command that says whether this machine is ready, and how to mend what is not."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.errors import UsageError
from runmanager.records.location import OUTPUT_ROOT

if TYPE_CHECKING:
    from runmanager.cli.health import Check

__all__ = ["doctor", "show"]

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


def doctor(
    output_root: Annotated[Path, typer.Option(help="The folder that sweeps will be written to.")] = OUTPUT_ROOT,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure what the devices can do at most instead; a few seconds each.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(help="With --calibrate: the CPU with so many threads; default: all cores, half, …")
    ] = None,
) -> int:
    """Look at versions, devices, cores, folders and space; say what is wrong, and how to mend it.

    Status 0 if nothing is an error, else 1.
    """
    if calibrate:
        from runmanager.cli.calibrate import calibrate as measure_ceilings

        return measure_ceilings(threads=threads)
    if threads is not None:
        raise UsageError(f"`--threads` must come with --calibrate, got {threads} without it; give both.")
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
