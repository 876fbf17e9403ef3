"""Arguments and options that several commands share, and what is refused where an option is repeated."""

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from typer.core import TyperCommand

from runmanager.app.request.command_reader import split_fixed
from runmanager.cli.completion import complete_runs, complete_sweeps, complete_targets
from runmanager.errors import UsageError
from runmanager.records.sweep.lookup import find_run
from runmanager.text import shell_quote

if TYPE_CHECKING:
    from runmanager.records.storage.reader import StoredRun


SweepName = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP", help="The sweep's folder, or its name under outputs/.", autocompletion=complete_sweeps
    ),
]

SweepNames = Annotated[
    list[str],
    typer.Argument(
        metavar="SWEEP",
        help="The folder of a sweep, or its name under outputs/; several are shown together.",
        autocompletion=complete_sweeps,
    ),
]

Target = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP|RUN",
        help="A sweep or a run: a folder, a sweep's name under outputs/, SWEEP/RUN, or the first characters of a run.",
        autocompletion=complete_targets,
    ),
]

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run's folder, SWEEP/RUN, or the first characters of its name or of its eight-digit signature; "
        "RUN may also be some of its settings, as in first/lr=0.1.",
        autocompletion=complete_runs,
    ),
]

RunSettings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME=VALUE]...", help="Settings of the run, after a SWEEP.", show_default=False),
]


BetterOption = Annotated[
    str | None,
    typer.Option(
        metavar="max|min",
        help="Whether larger (max) or smaller (min) values of the metric are better. Default: as the runs declare, "
        "else by its name.",
    ),
]

AtOption = Annotated[
    Literal["last", "best"],
    typer.Option(help="The epoch of each run that counts for a metric of epochs; the best one flatters the result."),
]


class RunFormat(StrEnum):
    """Output formats of commands on single runs."""

    TEXT = "text"
    JSON = "json"


RunFormatOption = Annotated[RunFormat, typer.Option("--format", help="JSON has every value in full.")]

TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Print the command even if it imports and calls a `_target_` that the run's files name."
    ),
]


def read_named_run(name: str, settings: Sequence[str] | None = None) -> "StoredRun":
    """Read the stored run that a command names: a run, or a sweep and settings of one of its runs.

    Raises `UsageError` if no run or several match.
    """
    from runmanager.records.storage.reader import read_run

    if odd := next((word for word in settings or () if "=" not in word), None):
        raise UsageError(
            f"A run must be named as RUN, SWEEP/RUN or SWEEP NAME=VALUE, got '{odd}' after '{name}'; "
            f"write {shell_quote('/'.join([name, odd]))}."
        )
    return read_run(find_run("/".join([name, ",".join(settings)]) if settings else name))


_FIXED = "runmanager.fixed"
_DEBUG = {"--debug": "Add the traceback of an error."}


class UniqueOptionsCommand(TyperCommand):
    """A command that raises `UsageError` if an option that takes one value is given more than once.

    Its help also names `--debug`, which is taken from any command line before it is parsed, and `passed_on`: options
    by their text, as in `--zip NAMES`, that the command passes on unparsed.
    """

    passed_on: ClassVar[Mapping[str, str]] = {}
    _is_in_help = False

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; called by Typer."""
        self._is_in_help = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_in_help = False

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters that are parsed, and in the help the others; called by Typer."""
        *own, last = super().get_params(ctx)
        if not self._is_in_help:
            return [*own, last]
        return [*own, *_described({**self.passed_on, **_DEBUG}), last]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; called by Typer."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        single = [
            param for param in given if not getattr(param, "is_flag", True) and not getattr(param, "multiple", False)
        ]
        counts = Counter(param.opts[-1] for param in single)
        faults = [
            f"`{option}` must be given once, got it {count} times; give one value."
            for option, count in counts.items()
            if count > 1
        ]
        if faults:
            raise UsageError("\n".join(faults))
        return super().parse_args(ctx, args)


class FixedArgumentsCommand(UniqueOptionsCommand):
    """A command that keeps what follows `--` apart, for `fixed_arguments`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before `--`; called by Typer."""
        own, fixed = split_fixed(args)
        ctx.meta[_FIXED] = tuple(fixed)
        return super().parse_args(ctx, own)


def fixed_arguments(ctx: Any) -> tuple[str, ...]:
    """Return the arguments after `--` of the command that Typer's context `ctx` is of."""
    return tuple(ctx.meta[_FIXED])


def _described(options: Mapping[str, str]) -> list[Any]:
    """Return options for the help alone, from their words and texts."""

    def command(**given: Any) -> None: ...

    parameters = [_parameter(*words.partition(" ")[::2], text) for words, text in options.items()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return list(typer.main.get_command(app).params)


def _parameter(option: str, metavar: str, text: str) -> inspect.Parameter:
    kind = str | None if metavar else bool
    return inspect.Parameter(
        option.strip("-").replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=None if metavar else False,
        annotation=Annotated[kind, typer.Option(option, metavar=metavar or None, help=text)],
    )
