"""The metrics that a script prints: their points to TensorBoard, the last of each series for the record.

`--scalar` names them by expressions. Other numbers count where their lines call them results (`named_numbers.py`).
"""

import codecs
import contextlib
import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runmanager.app.programs.script.output.named_numbers import NamedNumber, NamedNumbers
from runmanager.app.programs.script.output.scalar_pattern import ScalarPattern
from runmanager.records.files.paths import EVENT_WRITER, RunPaths

if TYPE_CHECKING:
    from runmanager.results.tfevents.reader import Series
    from runmanager.tracking.tensorboard.event_writer import EventWriter

_LOG_BYTES = 2**20
_MAX_BYTES = 2**24  # of a log that is searched at the end of its run: a second or two
_CHUNK_BYTES = 2**18
_MAX_SHOWN = 60  # characters of a match that is not a number
_MAX_UNASKED = 200  # names: what has more is no log of metrics
_DENSE = 512  # points of a series that the event file has one by one; of each further 256 twice as many make one


_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")  # CSI, OSC, two bytes
_REDRAWS = re.compile(r"\x1b\[\d*[AFGK]")  # the cursor goes up or to a column, or the line is erased
_MAX_LINE = 2**20  # characters; longer lines are not for people to read


@dataclass(frozen=True)
class Point:
    """A value of a metric, and when the `line` that shows it was complete (seconds since 1970).

    `number` is what the line says of one that no pattern names.
    """

    name: str
    value: float
    wall_time: float
    line: str = ""
    number: NamedNumber | None = None


class StreamScanner:
    """Finds the points in the bytes of one stream.

    A line ends with a newline or a carriage return; what follows a carriage return redraws the line, and a redraw that
    repeats the stream's last value of a metric is not a further point. `when_odd` is called with the name and the text
    of a match that is not a number. `named` finds numbers that no pattern names.
    """

    def __init__(
        self,
        patterns: Sequence[ScalarPattern],
        *,
        when_found: Callable[[Point], object],
        when_odd: Callable[[str, str], object],
        named: NamedNumbers | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._patterns = patterns
        self._when_found = when_found
        self._when_odd = when_odd
        self._named = named
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
        for name, value, number in self._numbers(line):
            if not (is_redraw and self._is_repeated(name, value)):
                self._last[name] = value
                self._when_found(Point(name, value, wall_time, line, number))

    def _numbers(self, line: str) -> Iterator[tuple[str, float, NamedNumber | None]]:
        found = []
        for pattern in self._patterns:
            for value in pattern.values(line):
                if isinstance(value, str):
                    self._when_odd(pattern.name, value)
                else:
                    found.append(value)
                    yield pattern.name, value, None
        if self._named is None:
            return
        for number, value in self._named.find(line):
            if value in found or value * number.hundred in found:
                self._named.forget(number.name)  # it has a name already
            else:
                yield number.name, value, number

    def _is_repeated(self, name: str, value: float) -> bool:
        last = self._last.get(name)
        return last is not None and (last == value or (last != last and value != value))  # NaN differs from itself


class PrintedValues:
    """The last value of each series: of those that `patterns` name, and of others by the names that were printed.

    `settings` are names of numbers that are no results.
    """

    def __init__(self, patterns: Sequence[ScalarPattern], *, settings: Collection[str] = ()) -> None:
        self.asked: dict[str, float] = {}
        self.unasked: dict[str, float] = {}
        self.odd: dict[str, str] = {}
        self._patterns = patterns
        self._not_unasked = [*settings, *(each.name for each in patterns)]
        self._names = frozenset(each.name for each in patterns)

    def scanner(
        self, when_found: Callable[[Point], object] = lambda _: None, *, clock: Callable[[], float] = time.time
    ) -> StreamScanner:
        """Return what takes the bytes of one stream; `when_found` gets each point that counts."""

        def take(point: Point) -> None:
            values = self.asked if point.name in self._names else self.unasked
            if point.name in values or values is self.asked or len(values) < _MAX_UNASKED:
                values[point.name] = point.value
                when_found(point)

        return StreamScanner(
            self._patterns,
            when_found=take,
            when_odd=lambda name, text: self.odd.setdefault(name, text[:_MAX_SHOWN]),
            named=NamedNumbers(self._not_unasked),
            clock=clock,
        )

    @property
    def last(self) -> dict[str, float]:
        """The last values of all series."""
        return self.unasked | self.asked

    def notes(self, *, earlier: Collection[str] = ()) -> list[str]:
        """What is no number, and the patterns that nothing matched, or only in an `earlier` attempt."""
        unknown = [each.name for each in self._patterns if each.name not in self.asked and each.name not in self.odd]
        odd = [
            f"--scalar {name}: `{text}` is not a number, and is left out"
            + ("; the last number that was printed counts" if name in self.asked else "")
            for name, text in self.odd.items()
        ]
        before = "an earlier attempt printed the value, this one printed none"
        nothing = "nothing that the script printed matches"
        unknown.sort(key=lambda name: name not in earlier)
        return [*odd, *(f"--scalar {name}: {before if name in earlier else nothing}" for name in unknown)]


class PrintedMetrics:
    """Takes what a script prints, and keeps its series.

    The points of a series are scalars of the run's event file, fewer and fewer of a long one; their step counts from 1,
    and a resumed run continues the count. A script that `logs_itself` has that file to itself: the points then go to
    the folder `printed/`. Where an attempt `continues` the one before, which was killed after its last step, a series
    of which it prints nothing keeps the last value in run.log. Of a run that has ended, `read_log` takes what it has
    printed; then only the series that this `replaces` are written, in the place of earlier ones.
    """

    def __init__(
        self,
        patterns: Sequence[ScalarPattern],
        paths: RunPaths,
        *,
        settings: Collection[str] = (),
        metric: str | None = None,
        logs_itself: bool = False,
        continues: bool = False,
        replaces: Collection[str] | None = None,
    ) -> None:
        self.values = PrintedValues(patterns, settings=settings)
        self.num_points = 0
        """How many points this process has found."""
        self._paths = paths
        self._metric = metric
        self._counts: dict[str, int] = {}
        self._unwritten: dict[str, Point] = {}
        self._writer: EventWriter | None = None
        self._lost: OSError | None = None
        self._logs_itself = logs_itself
        self._replaces = replaces
        self._earlier = PrintedValues(patterns, settings=settings)
        if continues:
            scan_log(self._earlier.scanner(), paths.log, last_bytes=_LOG_BYTES)  # event files have fewer digits
        self._scanners = {name: self.values.scanner(self._take) for name in ("stdout", "stderr")}

    @property
    def scanners(self) -> Mapping[str, Callable[[bytes], object]]:
        """For each stream what takes its bytes."""
        return {name: scanner.feed for name, scanner in self._scanners.items()}

    def read_log(self) -> None:
        """Take the whole output of a run that has ended from run.log; its points have the time of the file."""
        with contextlib.suppress(OSError):
            written = self._paths.log.stat().st_mtime
            scan_log(self.values.scanner(self._take, clock=lambda: written), self._paths.log)
        self.close()

    def close(self) -> None:
        """Scan the rest of both streams, and close the event file, which has the last point of each series."""
        for scanner in self._scanners.values():
            scanner.close()
        for point in self._unwritten.values():
            self._write(point)
        if self._writer is not None:
            with contextlib.suppress(OSError):  # every point was flushed, or its loss is known
                self._writer.close()

    def metrics(self) -> dict[str, float | None]:
        """The last value of each pattern's series, None for one that is not finite: `metric`, then as they appeared."""
        ordered = sorted((self._earlier.asked | self.values.asked).items(), key=lambda item: item[0] != self._metric)
        return _finite(dict(ordered))

    def unasked(self) -> dict[str, float | None]:
        """The last value of each other series."""
        return _finite(self._earlier.unasked | self.values.unasked)

    def notes(self) -> list[str]:
        """What could not be read as a number, the patterns that nothing matched, and what the event file lacks."""
        lost = [] if self._lost is None else [f"the event file lacks the end of the series: {self._lost}"]
        return [*self.values.notes(earlier=self._earlier.asked), *lost]

    def _take(self, point: Point) -> None:
        self.num_points += 1
        if self._replaces is not None and point.name not in self._replaces:
            return
        if self._writer is None and self._lost is None:
            self._open_writer()
        self._counts[point.name] = count = self._counts.get(point.name, 0) + 1
        if _is_kept(count):
            self._unwritten.pop(point.name, None)
            self._write(point)
        else:
            self._unwritten[point.name] = point

    def _write(self, point: Point) -> None:
        if self._writer is None:
            return
        try:
            self._writer.scalars({point.name: point.value}, self._counts[point.name], wall_time=point.wall_time)
            self._writer.flush()
        except OSError as error:  # a full disk costs the rest of the series, not the run
            self._writer, self._lost = None, error

    def _open_writer(self) -> None:
        from runmanager.results.tfevents.reader import read_event_files, writer_of
        from runmanager.tracking.tensorboard.event_writer import EventWriter, truncate_events

        is_apart = self._logs_itself or self._paths.reported.exists()
        folder = self._paths.root / "printed" if is_apart else self._paths.root
        try:
            if is_apart:
                folder.mkdir(exist_ok=True)
            files = sorted(folder.glob("events.out.tfevents.*"))
            existing = next((file for file in files if writer_of(file) == EVENT_WRITER), None)  # not the script's
            if existing is not None:
                truncate_events(existing, existing.stat().st_size)  # a kill may have left half a record
                stored = read_event_files([existing]).scalars
                if not stored.keys().isdisjoint(self._replaces or ()):
                    stored = {tag: series for tag, series in stored.items() if tag not in (self._replaces or ())}
                    _write_again(existing, stored)
                self._counts = {tag: max(series.steps, default=0) for tag, series in stored.items()}
            self._writer = EventWriter(folder, existing)
        except OSError as error:
            self._lost = error


def _is_kept(count: int) -> bool:
    """Whether a point is written when it comes: 512 of a series, and 256 for each time that the series doubles."""
    stride = 1 << ((count - 1) // _DENSE).bit_length()
    return count % stride == 0


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def last_printed(log: Path, settings: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the last value of each series at the end of a log, None for one that is not finite.

    `settings` by their dotted names are none where they are numbers, under the whole name and its last part.
    """
    names = [name for name, value in settings.items() if isinstance(value, int | float)]
    values = PrintedValues([], settings=[*names, *(name.rpartition(".")[2] for name in names)])
    scan_log(values.scanner(), log, last_bytes=_MAX_BYTES)
    return _finite(values.unasked)


def scan_log(scanner: StreamScanner, log: Path, *, last_bytes: int | None = None) -> None:
    """Let a scanner take a log, all of it or its last whole lines; a file that cannot be read adds nothing."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        if last_bytes is not None and file.seek(max(0, file.seek(0, os.SEEK_END) - last_bytes)) > 0:
            file.readline(_MAX_LINE)  # the end of a line, whose words may mean something else
        while chunk := file.read(_CHUNK_BYTES):
            scanner.feed(chunk)
        scanner.close()


def _write_again(file: Path, scalars: "Mapping[str, Series]") -> None:
    """Replace an event file by one with these scalars."""
    from runmanager.tracking.tensorboard.event_writer import EventWriter

    beside = file.with_name(f".{file.name}")
    beside.unlink(missing_ok=True)
    writer = EventWriter(file.parent, beside)
    for tag, series in scalars.items():
        for step, value, time_ in zip(series.steps, series.values, series.times, strict=True):
            writer.scalars({tag: value}, step, wall_time=time_)
    writer.close()
    os.replace(beside, file)
