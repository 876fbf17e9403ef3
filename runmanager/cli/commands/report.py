"""`runmanager report`: a sweep's tables and report.html, rebuilt."""

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
    """Formats of figure files."""

    SVG = "svg"
    PNG = "png"
    BOTH = "both"


def report(
    sweep: SweepName,
    figures: Annotated[
        FigureFormat | None,
        typer.Option("--figures", help="Also write each figure to a file in the sweep's folder figures/."),
    ] = None,
) -> None:
    """Rebuild a sweep's tables and report.html from its runs, and print where they are."""
    from runmanager.results.figures.figure import FIGURE_FORMATS
    from runmanager.results.result_files import write_tables

    paths = find_sweep(sweep)
    kinds = [kind for kind in FIGURE_FORMATS if figures in (kind, FigureFormat.BOTH)]
    with require_writable("SWEEP", paths.root, way_out="`runmanager table` and `compare` write nothing"):
        written = write_tables(paths, figures=kinds)
    tables = ", ".join(path.name for path in (paths.results("csv"), paths.epochs_csv, paths.comparison("csv")))
    lines = [str(paths.report), f"In the same folder: {tables}, also as .json, .md and .html."]
    if kinds:
        lines.append(_figure_line(written))
    print_text("".join(f"{line}\n" for line in lines))


def _figure_line(written: Sequence[Path]) -> str:
    if not written:
        return "No figures: no run has measured anything yet."
    return f"In {written[0].parent}: {', '.join(path.name for path in written)}."
