"""The metrics that a script prints: each point to TensorBoard, the last of each series for the record."""

import codecs
import contextlib
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runmanager.app.programs.script.output.scalar_pattern import ScalarPattern
from runmanager.records.files.paths import EVENT_WRITER, RunPaths

if TYPE_CHECKING:
    from runmanager.tracking.tensorboard.event_writer import EventWriter

__all__ = ["PrintedMetrics"]

_LOG_BYTES = 2**20
_MAX_SHOWN = 60  # characters of a match that is not a number


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


class PrintedMetrics:
    """Takes what a script prints and keeps the values that its patterns find.

    The points of a series are scalars of the run's event file; their step counts from 1, and a resumed run continues
    the count. A script that `logs_itself` has that file to itself: the points then go to the folder `printed/`. Where
    an attempt `continues` the one before, which was killed after its last step, a series of which it prints nothing
    keeps the last value in run.log.
    """

    def __init__(
        self,
        patterns: Sequence[ScalarPattern],
        paths: RunPaths,
        *,
        metric: str | None = None,
        logs_itself: bool = False,
        continues: bool = False,
    ) -> None:
        self.last: dict[str, float] = {}
        self._patterns = patterns
        self._paths = paths
        self._metric = metric
        self._num_points = 0
        self._counts: dict[str, int] = {}
        self._odd: dict[str, str] = {}
        self._writer: EventWriter | None = None
        self._lost: OSError | None = None
        self._logs_itself = logs_itself
        self._earlier = _values_at_end(paths.log, patterns) if continues else {}
        self._scanners = {name: self._scanner() for name in ("stdout", "stderr")} if patterns else {}

    @property
    def scanners(self) -> Mapping[str, Callable[[bytes], object]]:
        """For each stream what takes its bytes; none without patterns."""
        return {name: scanner.feed for name, scanner in self._scanners.items()}

    def close(self) -> None:
        """Scan the rest of both streams, and close the event file."""
        for scanner in self._scanners.values():
            scanner.close()
        if self._writer is not None:
            with contextlib.suppress(OSError):  # every point was flushed, or its loss is known
                self._writer.close()

    @property
    def num_points(self) -> int:
        """How many points this process has found."""
        return self._num_points

    def metrics(self) -> dict[str, float | None]:
        """The last value of each series, None for one that is not finite: `metric`, then in order of appearance."""
        ordered = sorted((self._earlier | self.last).items(), key=lambda item: item[0] != self._metric)
        return {name: value if math.isfinite(value) else None for name, value in ordered}

    def notes(self) -> list[str]:
        """What could not be read as a number, and the patterns that nothing matched."""
        unknown = [each.name for each in self._patterns if each.name not in self.last and each.name not in self._odd]
        earlier = [name for name in unknown if name in self._earlier]
        missing = [name for name in unknown if name not in self._earlier]
        odd = [
            f"--scalar {name}: `{text}` is not a number, and is left out"
            + ("; the last number that was printed counts" if name in self.last else "")
            for name, text in self._odd.items()
        ]
        lost = [] if self._lost is None else [f"the event file lacks the end of the series: {self._lost}"]
        return [
            *odd,
            *(f"--scalar {name}: an earlier attempt printed the value, this one printed none" for name in earlier),
            *(f"--scalar {name}: nothing that the script printed matches" for name in missing),
            *lost,
        ]

    def _scanner(self) -> StreamScanner:
        return StreamScanner(
            self._patterns,
            when_found=self._take,
            when_odd=lambda name, text: self._odd.setdefault(name, text[:_MAX_SHOWN]),
        )

    def _take(self, point: Point) -> None:
        self.last[point.name] = point.value
        self._num_points += 1
        if self._lost is not None:
            return
        try:
            self._write(point)
        except OSError as error:  # a full disk costs the rest of the series, not the run
            self._lost = error

    def _write(self, point: Point) -> None:
        if self._writer is None:
            self._writer = self._open_writer()
        self._counts[point.name] = step = self._counts.get(point.name, 0) + 1
        self._writer.scalars({point.name: point.value}, step, wall_time=point.wall_time)
        self._writer.flush()

    def _open_writer(self) -> "EventWriter":
        from runmanager.results.tfevents.reader import writer_of
        from runmanager.tracking.tensorboard.event_writer import EventWriter, truncate_events

        is_apart = self._logs_itself or self._paths.reported.exists()
        folder = self._paths.root / "printed" if is_apart else self._paths.root
        if is_apart:
            folder.mkdir(exist_ok=True)
        files = sorted(folder.glob("events.out.tfevents.*"))
        existing = next((file for file in files if writer_of(file) == EVENT_WRITER), None)  # not one of the script's
        if existing is not None:
            truncate_events(existing, existing.stat().st_size)  # a kill may have left half a record
            self._counts = _counts_in(existing)
        return EventWriter(folder, existing)


def _values_at_end(log: Path, patterns: Sequence[ScalarPattern]) -> dict[str, float]:
    """The last value of each series in the last megabyte of a log; event files have fewer digits."""
    found: dict[str, float] = {}
    scanner = StreamScanner(
        patterns,
        when_found=lambda point: found.__setitem__(point.name, point.value),
        when_odd=lambda name, text: None,
    )
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
        scanner.feed(file.read(_LOG_BYTES))
        scanner.close()
    return found


def _counts_in(events: Path) -> dict[str, int]:
    """The number of values of each tag in an event file: that of an earlier attempt."""
    from runmanager.results.tfevents.reader import read_event_files

    return {tag: len(series.values) for tag, series in read_event_files([events]).scalars.items()}
