"""The commands that run cells: `sweep` and `run` parse their own words, and their help has the options of a sweep."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from runmanager.app.request.command import Command
from runmanager.app.request.command_reader import read_words, split_fixed
from runmanager.app.request.sweep_request import Form, Kind, Option, options
from runmanager.cli.repeated_options import UniqueOptionsCommand

__all__ = ["HELP_FLAGS", "PROGRAM_METAVAR", "DemoCommand", "SweepCommand", "with_options"]

PROGRAM_METAVAR = "[PROGRAM] [SETTINGS and OPTIONS]... [-- ARGUMENTS]..."
HELP_FLAGS = ("--help", "-h")

_PANELS = {
    frozenset(Kind): "Options, before or after the settings",
    frozenset({Kind.SCRIPT, Kind.APPLICATION}): "Options for a script or a Hydra application",
    frozenset({Kind.SCRIPT}): "Options for a script",
    frozenset({Kind.JOB}): "Options for the built-in job",
}
_COMMAND = "runmanager.command"


class SweepCommand(UniqueOptionsCommand):
    """A command whose words are read by `read_words`: settings and options in any order, arguments after `--`."""

    _has_default = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words, and show the help where they ask for it or are missing; called by Typer."""
        own, _ = split_fixed(args)
        if any(word in HELP_FLAGS for word in own) or not (args or self._has_default):
            return super().parse_args(ctx, ["--help"])
        super().parse_args(ctx, [])
        command = read_words(args)
        request = dataclasses.replace(command.request, debug=command.request.debug or bool(ctx.obj))
        called = ("runmanager", str(ctx.info_name), *args)
        ctx.meta[_COMMAND] = dataclasses.replace(command, request=request, words=called)
        return args


class DemoCommand(SweepCommand):
    """A `SweepCommand` that needs no words."""

    _has_default = True


def with_options(run: Callable[[Command], int], *, kinds: frozenset[Kind] = frozenset(Kind)) -> Callable[..., int]:
    """Return `run` as a command with the options of a sweep of these programs; it gets the parsed words.

    Its `cls` is `SweepCommand`.
    """

    @functools.wraps(run)
    def command(ctx: typer.Context, **_: Any) -> int:
        return run(ctx.meta[_COMMAND])

    parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
    parameters += [
        _parameter(each) for each in options().values() if each.name != "debug" and each.takes & kinds
    ]  # that of any command
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _parameter(each: Option) -> inspect.Parameter:
    kind: Any = bool if each.form is Form.FLAG else str | None
    shown = typer.Option(
        each.flag,
        metavar=each.metavar or (each.choices.replace(", ", "|") if each.choices else None),
        help=each.help,
        rich_help_panel=_PANELS[each.takes],
    )
    default: Any = False if each.form is Form.FLAG else None
    return inspect.Parameter(
        each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown]
    )
