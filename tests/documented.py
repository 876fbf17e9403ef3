"""The commands of docs/commands.md with what they print: run on the example sweep, compared, and written anew.

`python -m tests.documented` writes the page's outputs anew; lines `...`, which stand for any lines, are kept where they
still fit.
"""

import contextlib
import importlib.util
import io
import os
import re
import runpy
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runmanager.cli.main import run_command

__all__ = ["PAGE", "DocumentedCommand", "example_in", "fits", "output_of", "read_page"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "commands.md"
EXAMPLE = ROOT / "docs" / "example_sweep.py"
NEEDED = {"parquet": "pyarrow"}
"""What must be installed for a command that has the word."""

_BLOCK = re.compile(r"^```console\n\$ (?P<command>.*)\n(?P<output>(?:.*\n)*?)```$", re.M)
_ANY = "..."


@dataclass(frozen=True)
class DocumentedCommand:
    """One command of the page and the lines below it."""

    words: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def missing(self) -> str | None:
        """A package that it needs and that is not installed."""
        wanted = [package for word, package in NEEDED.items() if word in self.words]
        return next((package for package in wanted if importlib.util.find_spec(package) is None), None)

    def __str__(self) -> str:
        return shlex.join(self.words)


def read_page(text: str) -> list[DocumentedCommand]:
    """Every console block of the page, in order."""
    return [
        DocumentedCommand(tuple(shlex.split(block["command"])), tuple(block["output"].splitlines()))
        for block in _BLOCK.finditer(text)
    ]


@contextlib.contextmanager
def example_in(folder: Path) -> Iterator[None]:
    """The example sweep in `folder`, which is the current one meanwhile, and a terminal of 80 columns."""
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    with contextlib.chdir(folder):
        runpy.run_path(str(EXAMPLE))["write_example"]()
        try:
            yield
        finally:
            os.environ.pop("COLUMNS")
            if width is not None:
                os.environ["COLUMNS"] = width


def output_of(command: DocumentedCommand) -> list[str]:
    """What the command prints, errors too, without blanks at the ends of lines."""
    said = io.StringIO()
    assert command.words[0] == "runmanager", f"the page may hold our commands only: {command}"
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        run_command(command.words[1:])
    return [line.rstrip() for line in said.getvalue().rstrip().splitlines()]


def fits(expected: tuple[str, ...], got: list[str]) -> bool:
    """Whether the lines are the expected ones, where `...` stands for any."""
    patterns = [r"(?:[^\n]*\n)*?" if line.strip() == _ANY else re.escape(line.rstrip()) + r"\n" for line in expected]
    return re.fullmatch("".join(patterns), "".join(f"{line}\n" for line in got)) is not None


def main() -> None:
    """Write the outputs anew."""
    commands = iter(read_page(PAGE.read_text()))

    def written(block: re.Match[str]) -> str:
        command = next(commands)
        if command.missing is not None:
            print(f"kept, for want of {command.missing}: {command}")
            return block[0]
        got = output_of(command)
        lines = command.lines if fits(command.lines, got) else got
        return "\n".join(["```console", f"$ {block['command']}", *lines, "```"])

    with tempfile.TemporaryDirectory() as folder, example_in(Path(folder)):
        text = _BLOCK.sub(written, PAGE.read_text())
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
