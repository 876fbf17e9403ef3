"""`runmanager doctor`: whether this machine is ready, and how to fix what is not."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.arguments import RunFormat
from runmanager.cli.printing import console, print_document, print_text, wrap_lines
from runmanager.errors import UsageError
from runmanager.records.sweep.lookup import OUTPUT_ROOT
from runmanager.text import encodable, pluralize

if TYPE_CHECKING:
    from runmanager.cli.machine_checks import Check, Level

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
_INDENT = 22  # of what is said of a check


def doctor(
    output_root: Annotated[Path, typer.Option(help="The folder that sweeps are written to.")] = OUTPUT_ROOT,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure the devices' peak rates instead; a few seconds each.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(help="With --calibrate: the CPU threads to measure; default: all cores, half, …")
    ] = None,
    format_: Annotated[RunFormat, typer.Option("--format", help="JSON is a list of the checks.")] = RunFormat.TEXT,
) -> int:
    """Check versions, devices, cores, folders and disk space; print what is wrong and how to fix it.

    Exit status 0 without errors, else 1.
    """
    if calibrate:
        if format_ is RunFormat.JSON:
            raise UsageError("`--format json` must go without --calibrate, got both; leave one out.")
        from runmanager.cli.torch_checks import calibrate as calibrate_devices

        return calibrate_devices(threads=threads)
    if threads is not None:
        raise UsageError(f"`--threads` must come with --calibrate, got {threads} without it; give both.")
    from runmanager.cli.machine_checks import machine_checks
    from runmanager.cli.torch_checks import torch_checks

    checks = [*machine_checks(output_root), *torch_checks()]
    return show_json(checks) if format_ is RunFormat.JSON else show(checks)


def show_json(checks: Sequence["Check"]) -> int:
    """Print the checks as a list of objects; return the exit status."""
    texts = [{name: encodable(str(text)) for name, text in asdict(check).items()} for check in checks]
    print_document(texts)
    return _status(check.level for check in checks)


def show(checks: Iterable["Check"]) -> int:
    """Print one line a check, followed by the remedy of a failed one; return the exit status."""
    from rich.text import Text

    levels, target = [], console()
    for check in checks:
        levels.append(check.level)
        said = wrap_lines(check.finding, *([f"cure: {check.cure}"] if check.cure else []), indent=_INDENT)
        finding = said.replace("\n", f"\n{'':{_INDENT}}")
        line = Text.assemble((f"{check.level:8}", _COLOURS[check.level]), f" {check.subject:12} {finding}")
        target.print(line, soft_wrap=True)
    counts = [pluralize(number, level) for level, number in _problem_counts(levels)]
    print_text(f"\n{pluralize(len(levels), 'check')}: {', '.join(counts) or 'all is well'}.\n")
    return _status(levels)


def _problem_counts(levels: Sequence["Level"]) -> list[tuple[str, int]]:
    counts = Counter(map(str, levels))
    return [(level, counts[level]) for level in ("error", "warning") if counts[level]]


def _status(levels: Iterable["Level"]) -> int:
    return int("error" in map(str, levels))
