"""`runmanager mv`: another name for a sweep."""

from typing import Annotated

import typer

from runmanager.cli.arguments import SweepName
from runmanager.cli.printing import print_text
from runmanager.records.files.file_errors import require_writable
from runmanager.records.sweep.lookup import find_sweep

__all__ = ["mv"]


def mv(
    sweep: SweepName, name: Annotated[str, typer.Argument(metavar="NAME", help="The new name, in the same folder.")]
) -> None:
    """Rename a sweep. Its command, with the new name, continues it. A sweep that may be alive is not touched."""
    from runmanager.app.manage.sweep_folders import continued_with, rename_sweep
    from runmanager.results.result_files import write_tables

    paths = find_sweep(sweep)
    with require_writable("SWEEP", paths.root.parent, way_out="a sweep is renamed in its folder"):
        renamed = rename_sweep(paths, name)
    if renamed.results("csv").exists():
        write_tables(renamed, report=renamed.report.exists())  # they have the old name
    again = continued_with(renamed)
    print_text(f"{paths.root} is now {renamed.root}{'; ' if again else ''}{again}.\n")
