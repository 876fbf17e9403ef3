"""`runmanager sweep`: every combination of the settings, of the built-in job or of a script."""

import typer

from runmanager.cli.hydra_application import run_application, run_script
from runmanager.cli.script_options import takes_scripts

__all__ = ["sweep"]


@takes_scripts(run_script)
def sweep(ctx: typer.Context) -> int:
    """Run every combination of the settings; commas separate the values of each.

    Without PROGRAM it is the built-in job, the same as `python -m runmanager -m OVERRIDES`. Among the overrides stand
    `--dry-run`, `--quiet`, `--yes`, `--restore`, `--debug`, `--zip NAMES`, `--points FILE`, `--exclude CONDITION`,
    `--save NAME`, `--notify URL` and `--secrets NAMES`, which mean what they mean for a script. `--cfg job` prints the
    settings, `--config-dir FOLDER` adds a folder of presets, `--hydra-help` explains Hydra's other flags.

    PROGRAM is a script: a path that ends in `.py`, or `-m MODULE`. Each cell is a process of the script, with the
    settings as its arguments: `runmanager sweep train.py lr=0.1,0.01` runs `python train.py --lr=0.1`, then
    `--lr=0.01`. What stands after `--` is passed to all cells.
    """
    return run_application(ctx, ["-m", *ctx.args])
