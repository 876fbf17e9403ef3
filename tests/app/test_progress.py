"""Tests of what a command shows while its runs run: plain lines in a pipe, bars in a terminal."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DEADLINE_SECONDS = 120
LONGEST = 4096  # characters that a text which is looked for takes at most, with all the movements of the cursor in it


def test_a_pipe_gets_a_plain_line_when_a_run_starts_and_when_it_ends(grid: Any) -> None:
    lines = grid.done.out.splitlines()
    assert lines[0] == "8 runs to do, in outputs/grid"
    assert lines[1] == "[1/8] batch_size=16,num_workers=0,device=cpu started"
    assert re.match(
        r"✓ 1/8  batch_size=16,num_workers=0,device=cpu  finished  loss \d.* acc 0\.\d+ .*/s  [\d.]+ s$", lines[2]
    )
    assert lines[3] == "[2/8] batch_size=16,num_workers=0,device=cuda started"
    assert lines[4] == "- 2/8  batch_size=16,num_workers=0,device=cuda  skipped (device_unavailable)"
    assert len([line for line in lines if line.endswith(" started")]) == 8
    assert "\x1b" not in grid.done.out
    assert "\r" not in grid.done.out


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, folder: Path, environment: dict[str, str], *words: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runmanager", *words],
            cwd=folder,
            env={**environment, "TERM": "xterm", "LINES": "40"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""

    def read_until(self, text: str) -> None:
        until, unseen = time.monotonic() + DEADLINE_SECONDS, 0
        while text not in plain(self.shown[unseen:]):
            unseen = max(0, len(self.shown) - LONGEST)
            assert self._read(until), f"{text!r} was not shown:\n{self.plain}"

    @property
    def plain(self) -> str:
        return plain(self.shown)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        until = time.monotonic() + DEADLINE_SECONDS
        while self._read(until):
            pass
        os.close(self._master)
        return self.process.wait(60)

    def _read(self, until: float) -> bool:
        """Whether something more is shown; a bar that lives on shows something for ever, so there is a deadline."""
        left = until - time.monotonic()
        if left <= 0 or not select.select([self._master], [], [], left)[0]:
            self.process.kill()
            pytest.fail(f"the command came to no end:\n{self.plain}")
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


def plain(shown: str) -> str:
    """What was shown, without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


@pytest.fixture
def terminal(tmp_path: Path, environment: Callable[..., dict[str, str]]) -> Callable[..., Terminal]:
    def begin(*words: str) -> Terminal:
        return Terminal(tmp_path, environment(), *words)

    return begin


def test_a_terminal_gets_bars_and_keeps_the_finished_lines(
    terminal: Callable[..., Terminal], tmp_path: Path, own_module: Path, tiny: tuple[str, ...]
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    own = ("model=custom", "model._target_=own.Net")
    shown = terminal("-m", *tiny, *own, "lr=0.1,0.2", "device=cpu", "name=shown")
    shown.read_until("1/2 loss")  # the second epoch waits, so the bar stands at one of two
    assert "━" in shown.shown
    gate.unlink()
    assert shown.end() == 0, shown.shown
    assert re.search(r"✓ 1/2  lr=0\.1  finished", shown.plain)
    assert re.search(r"✓ 2/2  lr=0\.2  finished", shown.plain)
    assert "lr=0.1 started" not in shown.plain  # the bar says it
    # The bars are gone from the screen: what follows the last finished line moves the cursor up no more.
    after = shown.shown[shown.shown.rindex("finished  loss") :]
    assert "━━━━" not in after.split("N/A is not measured")[-1]


def test_many_cells_are_asked_about(terminal: Callable[..., Terminal], tmp_path: Path, tiny: tuple[str, ...]) -> None:
    asked = terminal("-m", *tiny, "seed=range(200)", "name=many")
    asked.read_until("Run 200 cells? [y/N]")
    asked.type("n\n")
    assert asked.end() == 2
    assert "error: Nothing was run." in asked.plain
    assert not (tmp_path / "outputs").exists()
