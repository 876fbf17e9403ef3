"""Run the commands of pages on sweeps, and compare or update their printed output.

Those of docs/commands.md run on the example sweep, those of tests/cli/outputs on a sweep of an earlier version.
`python -m tests.documented` updates the outputs on all pages. Lines `...`, which match any lines, are kept while they
still match.
"""

import contextlib
import importlib.util
import io
import os
import re
import runpy
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from runmanager.cli.main import run_command

__all__ = [
    *("OUTPUTS", "PAGE", "DocumentedCommand", "example_in", "fits", "output_of", "read_page", "stored_sweep_in"),
]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "commands.md"
EXAMPLE = ROOT / "docs" / "example_sweep.py"
OUTPUTS = sorted((ROOT / "tests" / "cli" / "outputs").iterdir())
"""Pages with the outputs of commands on the sweep of an earlier version, one for each command."""
STORED = ROOT / "tests" / "results" / "stored_sweep" / "first"
NEEDED = {"parquet": "pyarrow"}
"""Packages required by commands with this argument."""

_BLOCK = re.compile(r"^```console\n\$ (?P<command>.*)\n(?P<output>(?:.*\n)*?)```$", re.M)
_ANY = "..."


@dataclass(frozen=True)
class DocumentedCommand:
    """A command on the page and its printed lines."""

    args: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def missing(self) -> str | None:
        """A required package that is not installed, or None."""
        required = [package for argument, package in NEEDED.items() if argument in self.args]
        return next((package for package in required if importlib.util.find_spec(package) is None), None)

    def __str__(self) -> str:
        return shlex.join(self.args)


def read_page(text: str) -> list[DocumentedCommand]:
    """Return all console blocks of the page, in order."""
    return [
        DocumentedCommand(tuple(shlex.split(block["command"])), tuple(block["output"].splitlines()))
        for block in _BLOCK.finditer(text)
    ]


@contextlib.contextmanager
def example_in(folder: Path) -> Iterator[None]:
    """Write the examples to `folder` and make it the current folder, with a terminal of 80 columns."""
    with _terminal_in(folder):
        examples = runpy.run_path(str(EXAMPLE))
        examples["write_example"]()
        examples["write_multirun"]()
        yield


@contextlib.contextmanager
def stored_sweep_in(folder: Path) -> Iterator[None]:
    """Copy the stored sweep to outputs/first of `folder` and make it the current folder, as `example_in` does."""
    with _terminal_in(folder):
        shutil.copytree(STORED, "outputs/first")
        yield


@contextlib.contextmanager
def _terminal_in(folder: Path) -> Iterator[None]:
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    with contextlib.chdir(folder):
        try:
            yield
        finally:
            os.environ.pop("COLUMNS")
            if width is not None:
                os.environ["COLUMNS"] = width


def output_of(command: DocumentedCommand) -> list[str]:
    """Return the lines that the command prints, including errors, without trailing spaces."""
    output = io.StringIO()
    assert command.args[0] == "runmanager", f"the page may only contain our commands: {command}"
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        run_command(command.args[1:])
    return [line.rstrip() for line in output.getvalue().rstrip().splitlines()]


def fits(expected: tuple[str, ...], got: list[str]) -> bool:
    """Return whether the lines match the expected ones, where `...` matches any lines."""
    patterns = [r"(?:[^\n]*\n)*?" if line.strip() == _ANY else re.escape(line.rstrip()) + r"\n" for line in expected]
    return re.fullmatch("".join(patterns), "".join(f"{line}\n" for line in got)) is not None


def update(page: Path, sweep_in: Callable[[Path], AbstractContextManager[None]]) -> None:
    """Update the outputs on a page."""
    commands = iter(read_page(page.read_text()))

    def updated(block: re.Match[str]) -> str:
        command = next(commands)
        if command.missing is not None:
            print(f"kept, {command.missing} is not installed: {command}")
            return block[0]
        got = output_of(command)
        lines = command.lines if fits(command.lines, got) else got
        return "\n".join(["```console", f"$ {block['command']}", *lines, "```"])

    with tempfile.TemporaryDirectory() as folder, sweep_in(Path(folder)):
        text = _BLOCK.sub(updated, page.read_text())
    page.write_text(text)


if __name__ == "__main__":
    update(PAGE, example_in)
    for each in OUTPUTS:
        update(each, stored_sweep_in)
