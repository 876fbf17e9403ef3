"""Arguments after `--`: those of a script, the same in all its runs."""

from typing import Any

from runmanager.app.request.command_reader import split_fixed
from runmanager.cli.repeated_options import UniqueOptionsCommand

__all__ = ["FixedArgumentsCommand", "fixed_arguments"]

_FIXED = "runmanager.fixed"


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
