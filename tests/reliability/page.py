"""The rows of docs/reliability.md, each put there by the command that saw what it tells."""

import re
from pathlib import Path


def write_row(path: Path, begins: str, line: str) -> None:
    """Put `line` where the row whose first cell begins so (a regular expression) stood before."""
    text = path.read_text()
    new = re.sub(rf"^\| {begins}.*$", lambda _: line, text, count=1, flags=re.MULTILINE)
    if line not in new:
        raise RuntimeError(f"{path} must have a row that begins with {begins!r}, to be replaced; it has none.")
    path.write_text(new)
