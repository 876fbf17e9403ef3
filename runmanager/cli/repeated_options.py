"""Command classes: options that may be given only once, in the help too, and arguments after `--`."""

import inspect
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from runmanager.app.request.command_reader import split_fixed
from runmanager.errors import UsageError

__all__ = ["FixedArgumentsCommand", "UniqueOptionsCommand", "fixed_arguments"]


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
