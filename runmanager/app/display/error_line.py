"""Errors of commands on stderr."""

import sys

from runmanager.records.settings.secrets import redacted
from runmanager.text import fitted, printable

__all__ = ["print_error"]


def print_error(line: str) -> None:
    """Print an error as one line, in a terminal wrapped at words, without secrets and control characters."""
    text = f"error: {printable(redacted(line))}".replace("\n", r"\n")
    print(fitted(text, sys.stderr), file=sys.stderr)
