"""`runmanager help`: what a setting does."""

import shutil
from typing import Annotated

import typer

from runmanager.cli.completion import complete_setting_names
from runmanager.cli.printing import print_text

__all__ = ["help_"]


def help_(
    ctx: typer.Context,
    setting: Annotated[
        str | None,
        typer.Argument(
            metavar="SETTING",
            help="A setting or a group of settings, or a command. Without it every setting is listed.",
            autocompletion=complete_setting_names,
        ),
    ] = None,
) -> None:
    """Explain a setting: what it does, its type, default and values."""
    from runmanager.app.reference.help_text import help_of_all, help_on

    width = shutil.get_terminal_size().columns
    if setting is None:
        print_text(help_of_all(width=width))
        return
    root = ctx.parent.command if ctx.parent is not None else None
    command = getattr(root, "commands", {}).get(setting)
    if ctx.parent is not None and command is not None:
        with command.make_context(setting, [], parent=ctx.parent, resilient_parsing=True) as of_command:
            print_text(f"{of_command.get_help()}\n")
        return
    print_text(help_on(setting, width=width))
