"""`runmanager run`: one combination of the settings, of the built-in job or of a script."""

import typer

from runmanager.cli.hydra_application import run_application, run_script
from runmanager.cli.script_options import takes_scripts

__all__ = ["run"]


@takes_scripts(run_script, is_single=True)
def run(ctx: typer.Context) -> int:
    """Run one combination of the settings.

    Without PROGRAM it is the built-in job, the same as `python -m runmanager OVERRIDES`. Among the overrides stand
    `--dry-run`, `--quiet`, `--yes`, `--restore`, `--debug`, `--zip NAMES`, `--points FILE`, `--exclude CONDITION`,
    `--save NAME`, `--notify URL` and `--secrets NAMES`, which mean what they mean for a script. `--cfg job` prints the
    settings, `--config-dir FOLDER` adds a folder of presets, `--hydra-help` explains Hydra's other flags. A preset that
    holds a grid is a sweep here too.

    PROGRAM is a script: a path that ends in `.py`, or `-m MODULE`, which is run once, with the settings as its
    arguments. What stands after `--` is passed to it as it is.
    """
    return run_application(ctx, ctx.args)
