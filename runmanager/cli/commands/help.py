"""`runmanager help`: what a setting does."""

import shutil
from typing import Annotated

import typer

from runmanager.cli.arguments import complete_setting_names
from runmanager.cli.printing import print_text
from runmanager.errors import UsageError


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
    from runmanager.app.reference.settings_reference import help_of_all, help_on

    width = shutil.get_terminal_size().columns
    if setting is None:
        print_text(help_of_all(width=width))
        return
    command = None if ctx.parent is None else getattr(ctx.parent.command, "commands", {}).get(setting)
    try:
        text = help_on(setting, width=width)
    except UsageError:
        if command is None:
            raise
        with command.make_context(setting, [], parent=ctx.parent, resilient_parsing=True) as context:
            typer.echo(context.get_help())
        return
    print_text(text)
    if command is not None:
        print_text(f"\n`runmanager {setting} --help` explains the command of this name.\n")
