"""Rows of docs/reliability.md, written by the commands that measured them."""

import re
from pathlib import Path


def write_row(path: Path, begins: str, line: str) -> None:
    """Replace the table row whose first cell matches `begins`, a regular expression, by `line`.

    Raises `RuntimeError` if the page has no such row.
    """
    text = path.read_text()
    new = re.sub(rf"^\| {begins}.*$", lambda _: line, text, count=1, flags=re.MULTILINE)
    if line not in new:
        raise RuntimeError(f"{path} must have a row that begins with {begins!r}, got none.")
    path.write_text(new)
