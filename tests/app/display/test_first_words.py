"""A command that runs cells speaks before it imports its libraries, on a terminal only."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIRST = "Checking the cells..."
# Writes to the terminal as the command does, and notes what had been imported at its first word.
PROGRAM = """
import sys
class Terminal:
    def __init__(self, stream):
        self.stream, self.libraries = stream, None
    def write(self, text):
        if self.libraries is None:
            self.libraries = sorted({"hydra", "torch", "rich"} & sys.modules.keys())
        return self.stream.write(text)
    def __getattr__(self, name):
        return getattr(self.stream, name)
sys.stdout = terminal = Terminal(sys.stdout)
from runmanager.app.hydra_main import main
status = main(sys.argv[1:])
print(terminal.libraries, file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.parametrize("has_terminal", [True, False])
def test_first_words_come_before_the_libraries(tmp_path: Path, has_terminal: bool) -> None:
    read, write = os.openpty() if has_terminal else os.pipe()
    words = ("dataset=fake", "dataset.size=64", "device=cpu", "--dry-run")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    with os.fdopen(read, encoding="utf-8", errors="replace") as stream:
        first = stream.readline().strip()
    assert done.returncode == 0, done.stderr
    assert (first == FIRST) is has_terminal
    if has_terminal:
        assert done.stderr.splitlines()[-1] == "[]"
