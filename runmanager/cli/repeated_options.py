"""A command that refuses an option given twice: the parser would take the last, and say nothing."""

from collections import Counter
from typing import Any

from typer.core import TyperCommand

from runmanager.errors import UsageError

__all__ = ["UniqueOptionsCommand"]


class UniqueOptionsCommand(TyperCommand):
    """Raises `UsageError` for an option with a value that is there more than once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Called by Typer."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        times = Counter(param.opts[-1] for param in given if not getattr(param, "is_flag", True))
        faults = [
            f"`{option}` must be given once, got it {number} times; give one value."
            for option, number in times.items()
            if number > 1
        ]
        if faults:
            raise UsageError("\n".join(faults))
        return super().parse_args(ctx, args)
