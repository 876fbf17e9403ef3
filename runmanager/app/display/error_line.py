"""Lines of commands that come before any library: the first words on a terminal, and errors on stderr."""

import sys

from runmanager.records.host.standard_streams import print_line
from runmanager.records.settings.secrets import redacted
from runmanager.text import printable_line


def print_error(line: str) -> None:
    """Print an error as one line, in a terminal wrapped at words, without secrets and control characters."""
    print_line(f"error: {printable_line(redacted(line))}", sys.stderr)


def show_first_words() -> None:
    """Print on a terminal that the command has begun; elsewhere nothing, as output in files begins with the plan."""
    if sys.stdout.isatty():
        print("Checking the cells...", flush=True)
