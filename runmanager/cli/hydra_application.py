"""Call of the built-in job's application, or of a script, by the commands that run cells."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from runmanager.app.display.first_words import show_first_words

if TYPE_CHECKING:
    from runmanager.app.script_command_line import ScriptCommandLine

__all__ = ["PASS_THROUGH", "run_application", "run_script"]

PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""Typer's settings for a command that passes its arguments to Hydra: `ctx.args` has them unchanged."""


def run_application(ctx: typer.Context, arguments: Sequence[str]) -> int:
    """Run the Hydra application with `arguments` and return its exit status; `--help` prints the command's help."""
    if "--help" in ctx.args:
        typer.echo(ctx.get_help())
        return 0
    from runmanager.app.hydra_main import main  # imports Hydra, which is slow

    return main([*arguments, "--debug"] if ctx.obj else list(arguments))


def run_script(line: "ScriptCommandLine") -> int:
    """Run the cells of a script and return the exit status. Raises `RunManagerError` before anything is run."""
    if not line.flags.quiet:
        show_first_words()
    from runmanager.app.script_main import main  # imports Hydra, which is slow

    return main(line)
