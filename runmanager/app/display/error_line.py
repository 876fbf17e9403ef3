"""Errors of commands on stderr."""

import sys

from runmanager.records.settings.secrets import redacted
from runmanager.text import printable

__all__ = ["print_error"]


def print_error(line: str) -> None:
    """Print an error as one line, without secrets and control characters."""
    print(f"error: {printable(redacted(line))}".replace("\n", r"\n"), file=sys.stderr)
