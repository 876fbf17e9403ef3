"""Errors of commands on stderr."""

import sys

from runmanager.records.host.standard_streams import print_line
from runmanager.records.settings.secrets import redacted
from runmanager.text import printable_line

__all__ = ["print_error"]


def print_error(line: str) -> None:
    """Print an error as one line, in a terminal wrapped at words, without secrets and control characters."""
    print_line(f"error: {printable_line(redacted(line))}", sys.stderr)
