"""The first line of a command that runs cells: it comes before the imports, which take seconds."""

import sys

__all__ = ["show_first_words"]


def show_first_words() -> None:
    """Print on a terminal that the command has begun; elsewhere nothing, as output in files begins with the plan."""
    if sys.stdout.isatty():
        print("Checking the cells...", flush=True)
