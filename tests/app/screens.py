"""A command in a pseudo-terminal of a given size, and its screen."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyte
import pytest

DEADLINE_SECONDS = 120
_SCROLLED_LINES = 2000


class Screen:
    """The terminal of a command. A test fails if what it waits for does not appear before the deadline."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: dict[str, str],
        columns: int = 80,
        rows: int = 24,
        term: str = "xterm-256color",
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=_SCROLLED_LINES, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        self._set_size(columns, rows)
        kept = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**kept, "TERM": term},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.sent = b""

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, without trailing blanks."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def cells(self) -> list[list[Any]]:
        """The characters on the screen with their colours, as pyte stores them."""
        rows = (self._screen.buffer[y] for y in range(self._screen.lines))
        return [[row[x] for x in range(self._screen.columns)] for row in rows]

    @property
    def shown(self) -> str:
        """The scrolled-away lines and the screen."""
        away = [
            "".join(line[x].data for x in range(self._screen.columns)).rstrip() for line in self._screen.history.top
        ]
        return "\n".join([*away, *self.lines]).rstrip()

    def wait_for(self, condition: Callable[["Screen"], object], what: str) -> None:
        """Read until the condition holds."""
        until = time.monotonic() + DEADLINE_SECONDS
        while not condition(self):
            assert self._read(until), f"{what} was not to be seen:\n{self.shown}"

    def wait_for_text(self, text: str) -> None:
        """Read until a text appears on the screen or has scrolled away."""
        self.wait_for(lambda screen: text in screen.shown, repr(text))

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        self._screen.resize(rows, columns)
        self._set_size(columns, rows)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        """Read until the command has ended; return its status."""
        until = time.monotonic() + DEADLINE_SECONDS
        while self._read(until):
            pass
        self.close()
        return self.process.wait(60)

    def close(self) -> None:
        """Close the terminal if it is open."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def _read(self, until: float) -> bool:
        """Read once; return whether output came before the deadline."""
        left = until - time.monotonic()
        if left <= 0 or not select.select([self._master], [], [], left)[0]:
            pytest.fail(f"the command came to no end:\n{self.shown}")
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self.sent += data
        self._stream.feed(data)
        return bool(data)
