"""`runmanager sweep`, `run` and `demo`: commands that parse their own words, and run cells."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from runmanager.app.request.command import Command
from runmanager.app.request.command_reader import read_words, split_fixed
from runmanager.app.request.sweep_request import Form, Kind, Option, options
from runmanager.cli.arguments import UniqueOptionsCommand
from runmanager.cli.hydra_application import run_cells
from runmanager.records.files.paths import dated_name

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


@partial(with_options, kinds=frozenset({Kind.JOB}))
def demo(command: Command) -> int:
    """Run a small grid over learning rates, CPU and CUDA on the built-in digits, and show the results.

    On a machine without CUDA it compares the learning rates. Takes settings and options of `runmanager sweep` too.
    """
    words = command.words[2:]
    given = {*command.given, *(word.partition("=")[0] for word in command.settings)}
    own = {"name": dated_name("demo"), "output_root": "outputs"}
    defaults = [f"{name}={value}" for name, value in own.items() if name not in given]
    words = ("experiment=digits_quick", *defaults, "--yes", *words)
    return run_cells(replace(command, words=(*command.words[:2], *words)), is_single=True)


@with_options
def run(command: Command) -> int:
    """Run one combination of the settings, as a sweep of one cell.

    PROGRAM, the settings and all options are those of `runmanager sweep`. A preset of the built-in job that holds a
    grid is a sweep here too.
    """
    return run_cells(command, is_single=True)


@with_options
def sweep(command: Command) -> int:
    """Run every combination of the settings; commas separate the values of each.

    PROGRAM is a script or a Hydra application: a path that ends in `.py`, or `-m MODULE`. Each cell of a script is a
    process, with the settings as its arguments: `runmanager sweep train.py lr=0.1,0.01` runs `python train.py
    --lr=0.1`, then `--lr=0.01`; an argument by position is a setting by its name. `amp=true,false` gives a flag or
    not, `dims=[1,2],[3]` a list, `null` leaves an argument out. What stands after `--` is passed to all cells.

    Without PROGRAM it is the built-in job, whose settings `runmanager help` lists; the same as `python -m runmanager
    -m`. Hydra's own options stay for it and for applications: `--cfg job` prints the settings, `--config-dir FOLDER`
    adds a folder of presets, `--hydra-help` explains them.
    """
    return run_cells(command, is_single=False)
