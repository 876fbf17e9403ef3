"""A command class that rejects repeated options; the parser would silently use the last one."""

from collections import Counter
from typing import Any

from typer.core import TyperCommand

from runmanager.errors import UsageError

__all__ = ["UniqueOptionsCommand"]


class UniqueOptionsCommand(TyperCommand):
    """A command that raises `UsageError` if an option that takes one value is given more than once."""

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
