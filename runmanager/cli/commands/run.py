"""`runmanager run`: one combination of the settings, of the built-in job or of a program."""

from runmanager.app.request.command import Command
from runmanager.cli.hydra_application import run_cells
from runmanager.cli.sweep_command import with_options

__all__ = ["run"]


@with_options
def run(command: Command) -> int:
    """Run one combination of the settings, as a sweep of one cell.

    PROGRAM, the settings and all options are those of `runmanager sweep`. A preset of the built-in job that holds a
    grid is a sweep here too.
    """
    return run_cells(command, is_single=True)
