"""The options of `sweep` and `run` for a script, and which commands they belong to."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_type_hints

import typer

from runmanager.app.script_command_line import ScriptCommandLine, ScriptFlags
from runmanager.cli.fixed_arguments import FixedArgumentsCommand, fixed_arguments
from runmanager.errors import UsageError
from runmanager.validation import did_you_mean

__all__ = ["SCRIPT_METAVAR", "ScriptCommand", "takes_scripts"]

SCRIPT_METAVAR = "[OVERRIDES]... | [OPTIONS] PROGRAM [SETTINGS]... [-- ARGUMENTS]..."

_WORDS, _IS_SCRIPT = "runmanager.words", "runmanager.is_script"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_PANEL = "Options for a script (before PROGRAM)"


def _option(text: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=_PANEL)


_OPTIONS: dict[str, Any] = {
    "module": _option("Run a module in place of a file.", "-m", metavar="MODULE"),
    "python": _option("The interpreter. Default: the current one.", metavar="PATH"),
    "name": _option("The sweep's folder; only a named sweep can be resumed.", metavar="NAME"),
    "output_root": _option("Where sweeps are stored.", metavar="FOLDER"),
    "scalar": _option(
        "A number that the script prints: one group is the value, two are a fraction. Repeatable.",
        metavar="NAME=REGEX",
    ),
    "metric": _option("The metric by which cells are ranked.", metavar="NAME"),
    "better": _option("Whether larger or smaller values of the metric are better.", metavar="max|min"),
    "argument": _option(
        "The form of a setting as an argument, such as '{name}={value}'. Default: a flag.", metavar="FORM"
    ),
    "unchecked": _option("Do not check the settings against the script's own help.", "--unchecked"),
    "unsigned": _option(
        "A setting, or a glob of several, that does not change what is computed. Repeatable.", metavar="NAME"
    ),
    "device": _option("The setting that names the device. Default: device.", metavar="NAME"),
    "secrets": _option("Further settings whose text is masked in what is written, as pin,pat.", metavar="NAMES"),
    "resume_with": _option(
        "A setting from the second attempt on, where the file exists; {run_dir} is the run's folder.",
        metavar="NAME=FILE",
    ),
    "zip": _option("Axes that advance together, such as lr,batch_size. Repeatable.", metavar="NAMES"),
    "points": _option("A YAML, JSON or CSV file of explicit points, combined with the axes.", metavar="FILE"),
    "exclude": _option("Leave out the cells that meet it: 'lr>0.1 and batch_size<100'.", metavar="CONDITION"),
    "save": _option(
        "Write the grid to conf/experiment/NAME.yaml, and run nothing; the built-in job only.", metavar="NAME"
    ),
    "launcher": _option("Where the cells run."),
    "slurm": _option("A setting of the Slurm launcher, such as time=120. Repeatable.", metavar="NAME=VALUE"),
    "workers": _option("Cells at a time."),
    "gpus": _option("The GPUs to use, such as 0,1. Default: all.", metavar="IDS"),
    "gpus_per_run": _option("GPUs of a cell. Default: one, where there is one.", metavar="N"),
    "processes": _option(
        "Ranks of a cell, which torchrun starts; several numbers, such as 1,2, are an axis.", metavar="N"
    ),
    "timeout": _option("Kill a cell after this time.", metavar="SECONDS"),
    "retries": _option("Further tries of a cell that was killed, timed out or vanished."),
    "resume": _option("What becomes of stored cells: run what is missing, run all again, or require some."),
    "rerun_changed": _option("Run finished cells again whose code or versions have changed.", "--rerun-changed"),
    "dry_run": _option("Show the plan, and run nothing.", "--dry-run"),
    "quiet": _option("Show only what went wrong.", "--quiet"),
    "yes": _option("Do not ask before a large sweep.", "--yes"),
    "notify": _option("Where apprise sends a message when the sweep ends.", metavar="URL"),
    "restore": _option("Run cells again that `runmanager rm` removed.", "--restore"),
}


class ScriptCommand(FixedArgumentsCommand):
    """A command that takes a script with options, or passes all its words on to the built-in job.

    The first word that is not an option decides: one that ends in `.py`, or a module's name after `-m`, is a script.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of a script, or none; called by Typer."""
        ctx.meta[_WORDS] = tuple(args)
        ctx.meta[_IS_SCRIPT] = args[:1] == ["--help"] or self._names_script(ctx, args)
        if ctx.meta[_IS_SCRIPT]:
            return super().parse_args(ctx, args)
        super().parse_args(ctx, [])
        ctx.args = list(args)
        return args

    def _names_script(self, ctx: Any, args: Sequence[str]) -> bool:
        valued = {name for each in self.get_params(ctx) for name in each.opts if not getattr(each, "is_flag", True)}
        words = iter(args)
        for word in words:
            if word == "-m":
                return _MODULE.fullmatch(next(words, "")) is not None
            if word in valued:
                next(words, None)
            elif not word.startswith("-"):
                return word.endswith(".py") and "=" not in word
        return False


def takes_scripts(
    of_script: Callable[[ScriptCommandLine], int], *, is_single: bool = False
) -> Callable[[Callable[[typer.Context], int]], Callable[..., int]]:
    """Decorate a command of the built-in job with the options of a script; `of_script` runs it where one is named.

    `is_single`: the command is for a single run.
    """

    def decorate(built_in: Callable[[typer.Context], int]) -> Callable[..., int]:
        @functools.wraps(built_in)
        def command(ctx: typer.Context, **given: Any) -> int:
            if not ctx.meta[_IS_SCRIPT]:
                return built_in(ctx) if ctx.args else _show_help(ctx)
            flags = ScriptFlags(**given)
            program, *settings = [flags.module, *ctx.args] if flags.module is not None else ctx.args
            if program.startswith("-"):  # Typer passes on what it does not know
                known = [name for each in ctx.command.params for name in each.opts if name.startswith("--")]
                way_out = did_you_mean(program, known, max_names=1, cutoff=0.7) or f"see {ctx.command_path} --help."
                raise UsageError(f"`{program}` must be an option, got an unknown one; {way_out}")
            words = ("runmanager", str(ctx.info_name), *ctx.meta[_WORDS])
            fixed = fixed_arguments(ctx)
            line = ScriptCommandLine(flags, program, tuple(settings), fixed, words, is_single, bool(ctx.obj))
            return of_script(line)

        parameters = [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        parameters += _parameters()
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def _show_help(ctx: typer.Context) -> int:
    typer.echo(ctx.get_help())
    return 0


def _parameters() -> list[inspect.Parameter]:
    hints = get_type_hints(ScriptFlags)
    return [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default if each.default_factory is dataclasses.MISSING else each.default_factory(),
            annotation=Annotated[hints[each.name], _OPTIONS[each.name]],
        )
        for each in dataclasses.fields(ScriptFlags)
    ]
