"""Run the commands of the README, and update the output that it shows: `python docs/readme_output.py`.

A block of output stands below the comment that names its command. Commands in blocks marked to run come first.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"

_RUN = re.compile(r"^<!-- run -->\n```console\n(?P<lines>(?:.*\n)*?)```$", re.M)
_OUTPUT = re.compile(r"^<!-- output of: (?P<command>.+) -->\n```text\n(?P<output>(?:.*\n)*?)```$", re.M)
_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")
_CLI = "from runmanager.cli.main import main; main()"
_WIDTH = "80"


def outputs(text: str) -> dict[str, str]:
    """Return each shown output by its command."""
    return {block["command"]: block["output"] for block in _OUTPUT.finditer(text)}


def run_commands(text: str, folder: Path) -> None:
    """Run the commands of the blocks that are marked to run, in their order."""
    for block in _RUN.finditer(text):
        for line in block["lines"].splitlines():
            if line.startswith("$ "):
                output_of(line[2:], folder)


def output_of(command: str, folder: Path) -> str:
    """Return what a command prints in `folder`, on lines as wide as those of the page."""
    _, *words = shlex.split(command)
    environment = {**os.environ, "COLUMNS": _WIDTH}
    done = subprocess.run(
        [sys.executable, "-c", _CLI, *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def shape(output: str) -> str:
    """Return an output without what a machine decides: its numbers, and where lines break and columns begin."""
    return " ".join(_NUMBER.sub("#", output).replace("─", " ").split())


def main() -> None:
    """Update the outputs."""
    text = README.read_text()
    with tempfile.TemporaryDirectory() as folder:
        run_commands(text, Path(folder))

        def updated(block: re.Match[str]) -> str:
            got = output_of(block["command"], Path(folder))
            return f"<!-- output of: {block['command']} -->\n```text\n{got}```"

        text = _OUTPUT.sub(updated, text)
    README.write_text(text)


if __name__ == "__main__":
    main()
