"""Scanning what a script prints for the values of metrics, one stream at a time."""

import codecs
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runmanager.app.programs.script.output.scalar_pattern import ScalarPattern

__all__ = ["Point", "StreamScanner"]

_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")  # CSI, OSC, two bytes
_REDRAWS = re.compile(r"\x1b\[\d*[AFGK]")  # the cursor goes up or to a column, or the line is erased
_MAX_LINE = 2**20  # characters; longer lines are not for people to read


@dataclass(frozen=True)
class Point:
    """A value of a metric, and when the line that shows it was complete (seconds since 1970)."""

    name: str
    value: float
    wall_time: float


class StreamScanner:
    """Finds the points in the bytes of one stream.

    A line ends with a newline or a carriage return; what follows a carriage return redraws the line, and a redraw that
    repeats the stream's last value of a metric is not a further point. `when_odd` is called with the name and the text
    of a match that is not a number.
    """

    def __init__(
        self,
        patterns: Sequence[ScalarPattern],
        *,
        when_found: Callable[[Point], object],
        when_odd: Callable[[str, str], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._patterns = patterns
        self._when_found = when_found
        self._when_odd = when_odd
        self._clock = clock
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pending = ""
        self._pending_since = 0.0  # when its last character came
        self._is_redraw = False
        self._last: dict[str, float] = {}

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        num_earlier = len(self._pending)
        now = self._clock()
        self._pending += self._decoder.decode(data)
        # The last character may be the first half of `\r\n`, which redraws nothing.
        complete = self._pending[:-1] if self._pending.endswith("\r") else self._pending
        begin = 0
        for end in _LINE_END.finditer(complete):
            self._scan(complete[begin : end.start()], self._pending_since if end.start() <= num_earlier else now)
            self._is_redraw = end[0] == "\r"
            begin = end.end()
        if len(self._pending) > num_earlier:
            self._pending_since = now
        self._pending = self._pending[begin:][-_MAX_LINE:]

    def close(self) -> None:
        """Scan the rest of the stream, which may lack a line's end."""
        self._pending += self._decoder.decode(b"", final=True)
        self._scan(self._pending.removesuffix("\r"), self._pending_since)
        self._pending = ""

    def _scan(self, raw: str, wall_time: float) -> None:
        if not raw:
            return
        is_redraw = self._is_redraw or _REDRAWS.search(raw) is not None
        line = _ESCAPE.sub("", raw)
        for pattern in self._patterns:
            for value in pattern.values(line):
                if isinstance(value, str):
                    self._when_odd(pattern.name, value)
                elif not (is_redraw and self._is_repeated(pattern.name, value)):
                    self._last[pattern.name] = value
                    self._when_found(Point(pattern.name, value, wall_time))

    def _is_repeated(self, name: str, value: float) -> bool:
        last = self._last.get(name)
        return last is not None and (last == value or (last != last and value != value))  # NaN differs from itself
