"""Images of the terminal from real command output; `python docs/screenshots.py terminal` creates them."""

import io
import itertools
import os
import re
import runpy
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.text import Text

DOCS = Path(__file__).resolve().parent
IMAGES = DOCS / "images"
COLUMNS = 88
ROWS = 30
SWEEP = (
    *("sweep", "batch_size=100,500", "lr=0.001,0.01", "device=cpu", "epochs=6", "dataset.size=1500", "name=first"),
    "hydra.launcher.workers=2",
)
_NUM_RUNS = 4
_Screen = runpy.run_path(str(DOCS.parent / "tests" / "app" / "screens.py"))["Screen"]
_COMMAND = "import sys; from runmanager.cli.main import run_command; sys.exit(run_command(sys.argv[1:]))"
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # a browser would have to load these from another host


def live_table(folder: Path) -> None:
    """Write terminal.svg: the live table of a small sweep on the built-in digits, halfway through; runs in `folder`."""
    screen = _begin(SWEEP, folder)
    screen.wait_for(lambda now: _is_halfway(now.lines), "one finished run and two running ones")
    _draw(screen.cells, SWEEP, IMAGES / "terminal.svg")
    assert screen.end() == 0, screen.shown


def comparison(folder: Path) -> None:
    """Write compare.svg: the output of `compare` for the example sweep in `folder`."""
    draw_command(("compare", "digits", "--axis", "batch_size"), folder, IMAGES / "compare.svg")


def _is_halfway(lines: Sequence[str]) -> bool:
    num_ended = sum(line.startswith("✓") for line in lines)
    running = [line for line in lines if line.startswith(">")]
    num_queued = next((int(found[1]) for line in lines if (found := re.search(r"running · (\d+) to come", line))), 0)
    # A run that has just ended is briefly in both parts of the table.
    is_consistent = num_ended + len(running) + num_queued == _NUM_RUNS
    is_drawn = any("━━━" in line and "╌╌" in line for line in running)
    return is_consistent and num_ended >= 1 and len(running) == 2 and is_drawn


def _begin(args: Sequence[str], folder: Path) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
    command = [sys.executable, "-c", _COMMAND, *args]
    return _Screen(command, folder=folder, environment=environment, columns=COLUMNS, rows=ROWS)


def draw_command(args: Sequence[str], folder: Path, path: Path) -> None:
    """Run a command in `folder` and draw its output below the command line."""
    screen = _begin(args, folder)
    assert screen.end() == 0, screen.shown
    _draw(screen.cells, args, path)


def _draw(cells: Sequence[Sequence[Any]], args: Sequence[str], path: Path) -> None:
    """Write a screen as SVG below the command line, without trailing empty lines."""
    lines = [_line(row) for row in cells]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    for line in (*_prompt(args), *lines):
        console.print(line, no_wrap=True, crop=True)
    path.parent.mkdir(exist_ok=True)
    path.write_text(_FONTS.sub("", console.export_svg(title="", unique_id=path.stem)))


def _prompt(args: Sequence[str]) -> list[Text]:
    """Return the command line, wrapped to the width of the screen."""
    typed = Text(f"$ runmanager {shlex.join(args)}", style="bold")
    return list(typed.wrap(Console(width=COLUMNS), COLUMNS))


def _line(row: Sequence[Any]) -> Text:
    line = Text()
    for style, cells in itertools.groupby(row, key=_style_of):
        line.append("".join(cell.data for cell in cells), style)
    line.rstrip()
    return line


def _style_of(cell: Any) -> Style:
    colour = None if cell.fg == "default" else {"brown": "yellow"}.get(cell.fg, cell.fg)
    return Style(color=colour, bold=cell.bold)
