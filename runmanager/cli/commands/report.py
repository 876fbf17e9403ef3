"""`runmanager report`: the tables and report.html of sweeps, rebuilt, and a page of several."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.arguments import SweepNames
from runmanager.cli.printing import print_text
from runmanager.cli.serving.local_server import open_page
from runmanager.records.files.file_errors import require_writable
from runmanager.records.files.paths import SweepPaths
from runmanager.records.sweep.lookup import find_sweep

if TYPE_CHECKING:
    from runmanager.results.figures.figure import FigureFormat as FigureKind


class FigureFormat(StrEnum):
    """Formats of figure files."""

    SVG = "svg"
    PNG = "png"
    BOTH = "both"


def report(
    sweeps: SweepNames,
    figures: Annotated[
        FigureFormat | None,
        typer.Option("--figures", help="Also write each figure to a file in the sweep's folder figures/."),
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser; over ssh, say how to copy it.")
    ] = False,
) -> None:
    """Rebuild the tables and report.html of sweeps from their runs, and print where they are.

    Of several sweeps, a page next to them has the table of all their runs.
    """
    from runmanager.results.figures.figure import FIGURE_FORMATS
    from runmanager.results.load.several_sweeps import name_sweeps
    from runmanager.results.result_files import write_cross_table

    named = name_sweeps([find_sweep(each) for each in sweeps])
    kinds = [kind for kind in FIGURE_FORMATS if figures in (kind, FigureFormat.BOTH)]
    for paths in named.values():
        _rebuild(paths, kinds)
    if len(named) > 1:
        root = next(iter(named.values())).root.parent
        with require_writable("SWEEP", root, way_out="`runmanager table` prints the same table"):
            page = write_cross_table(list(named.values()))
        print_text(f"{page}: the runs of {', '.join(named)} in one table.\n")
    else:
        page = next(iter(named.values())).report
    if open_:
        print_text(f"{open_page(page)}\n")


def _rebuild(paths: SweepPaths, kinds: "Sequence[FigureKind]") -> None:
    from runmanager.results.result_files import write_tables

    with require_writable("SWEEP", paths.root, way_out="`runmanager table` and `compare` write nothing"):
        written = write_tables(paths, figures=kinds)
    tables = "; ".join(map(_kinds_of, (paths.results("csv"), paths.comparison("csv"), paths.epochs_csv)))
    lines = [str(paths.report), f"In the same folder: {tables}."]
    if kinds:
        lines.append(_figure_line(written))
    print_text("".join(f"{line}\n" for line in lines))


def _kinds_of(table: Path) -> str:
    """The name of a table's file, with the other kinds that were written: `results.csv, .json`."""
    others = (suffix for suffix in (".json", ".md", ".html") if table.with_suffix(suffix).exists())
    return ", ".join([table.name, *others])


def _figure_line(written: Sequence[Path]) -> str:
    if not written:
        return "No figures: no run has measured anything yet."
    return f"In {written[0].parent}: {', '.join(path.name for path in written)}."
