"""Lines of what anybody may have written: such as a file can hold, and of a length that a record keeps."""

__all__ = ["MAX_LINE", "bounded", "error_line", "first_line", "writable"]

MAX_LINE = 1000
"""Characters of a line that a record keeps, at most."""


def bounded(line: str) -> str:
    """The line, cut where it is longer than any can be, as one that quotes an error with its data in it."""
    if len(line) <= MAX_LINE:
        return line
    tail = f"… (cut: {len(line):,} characters)"
    return line[: MAX_LINE - len(tail)] + tail


def writable(text: str) -> str:
    """A text that a file can hold: Python's own of files with odd names have characters that no encoding knows."""
    return text.encode(errors="backslashreplace").decode()


def first_line(text: str) -> str:
    """The first line that says anything, however long; empty where none does."""
    return next((line.strip() for line in writable(text).splitlines() if line.strip()), "")


def error_line(error: BaseException) -> str:
    """An exception in a line, however long: `ValueError: lr must be above 0`; its kind alone where it says nothing."""
    try:
        said = first_line(str(error))
    except Exception:  # somebody's own may fail in saying what it is
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
