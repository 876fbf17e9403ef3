"""`runmanager sweep`: every combination of the settings, of the built-in job or of a program."""

from runmanager.app.request.command import Command
from runmanager.cli.hydra_application import run_cells
from runmanager.cli.sweep_command import with_options

__all__ = ["sweep"]


@with_options
def sweep(command: Command) -> int:
    """Run every combination of the settings; commas separate the values of each.

    PROGRAM is a script or a Hydra application: a path that ends in `.py`, or `-m MODULE`. Each cell of a script is a
    process, with the settings as its arguments: `runmanager sweep train.py lr=0.1,0.01` runs `python train.py
    --lr=0.1`, then `--lr=0.01`; an argument by position is a setting by its name, `null` leaves an argument out. What
    stands after `--` is passed to all cells.

    Without PROGRAM it is the built-in job, the same as `python -m runmanager -m`. Hydra's own options stay for it and
    for applications: `--cfg job` prints the settings, `--config-dir FOLDER` adds a folder of presets, `--hydra-help`
    explains them.
    """
    return run_cells(command, is_single=False)
