"""Call of the built-in job's application, or of a script, by the commands that run cells."""

from collections.abc import Sequence

import typer

from runmanager.app.display.error_line import show_first_words
from runmanager.app.request.command import Command

PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""Typer's settings for a command that passes its arguments to Hydra: `ctx.args` has them unchanged."""


def run_application(ctx: typer.Context, arguments: Sequence[str]) -> int:
    """Run the Hydra application with `arguments` and return its exit status."""
    from runmanager.app.hydra_main import main  # imports Hydra, which is slow

    return main([*arguments, "--debug"] if ctx.obj else list(arguments))


def run_cells(command: Command, *, is_single: bool) -> int:
    """Run the cells of a command and return its exit status. Raises `RunManagerError` before anything is run."""
    words = command.words[2:]
    if command.program is None:
        from runmanager.app.hydra_main import main as run_job  # imports Hydra, which is slow

        debug = ["--debug"] if command.request.debug and "--debug" not in words else []
        return run_job([*([] if is_single else ["-m"]), *words, *debug])
    if not command.request.quiet:
        show_first_words()
    from runmanager.app.script_main import main as run_script

    return run_script(command, is_single=is_single)
