"""The command that makes a sweep's tables and its page for people anew."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from runmanager.cli.arguments import SweepName
from runmanager.cli.printing import print_text
from runmanager.records.files.file_errors import require_writable
from runmanager.records.sweep.lookup import find_sweep

__all__ = ["FigureFormat", "report"]


class FigureFormat(StrEnum):
    """The forms in which figures can be had as files."""

    SVG = "svg"
    PNG = "png"
    BOTH = "both"


def report(
    sweep: SweepName,
    figures: Annotated[
        FigureFormat | None,
        typer.Option("--figures", help="Write each figure as a file of its own too, into the sweep's folder figures/."),
    ] = None,
) -> None:
    """Make a sweep's tables and report.html anew from its runs, and say where they are."""
    from runmanager.results.figures.figure import FIGURE_FORMATS
    from runmanager.results.writer import write_tables

    paths = find_sweep(sweep)
    kinds = [kind for kind in FIGURE_FORMATS if figures in (kind, FigureFormat.BOTH)]
    with require_writable("SWEEP", paths.root, way_out="`runmanager table` and `compare` show it unwritten"):
        written = write_tables(paths, figures=kinds)
    tables = ", ".join(path.name for path in (paths.results("csv"), paths.epochs_csv, paths.comparison("csv")))
    lines = [str(paths.report), f"Beside it: {tables}, and the same as .json, .md and .html."]
    if kinds:
        lines.append(_told(written))
    print_text("".join(f"{line}\n" for line in lines))


def _told(written: Sequence[Path]) -> str:
    if not written:
        return "No figures: no run has measured anything yet."
    return f"In {written[0].parent}: {', '.join(path.name for path in written)}."
