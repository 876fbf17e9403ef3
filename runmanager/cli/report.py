"""The command that makes a sweep's tables and its page for people anew."""

from runmanager.cli.arguments import SweepName
from runmanager.cli.printing import print_text
from runmanager.records.location import find_sweep
from runmanager.records.writable import refused_unless_writable

__all__ = ["report"]


def report(sweep: SweepName) -> None:
    """Make a sweep's tables and report.html anew from its runs, and say where they are."""
    from runmanager.results.write import write_tables

    paths = find_sweep(sweep)
    with refused_unless_writable("SWEEP", paths.root, way_out="`runmanager table` and `compare` show it unwritten"):
        write_tables(paths)
    tables = ", ".join(path.name for path in (paths.results("csv"), paths.epochs_csv, paths.comparison("csv")))
    print_text(f"{paths.report}\nBeside it: {tables}, and the same as .json, .md and .html.\n")
