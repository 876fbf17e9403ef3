"""TensorBoard's event files, whoever wrote them: their scalars and hyperparameters, read without TensorBoard.

A record is a length, the checksum of the length, an `Event` message and its checksum (tensorflow/core/lib/io/
record_writer.h); both are checked. Of a message only what a scalar needs is looked at. Scalars are those of
`SummaryWriter` (`simple_value`) and of TensorFlow 2 (a tensor of one number under the plugin `scalars`); numbers of
fields and types are those of tensorboard/compat/proto. Programs write the same tag again and again, so that all of an
event but its time, step and value is the same: what was read of it once is looked up. So is an event of several values,
as TensorFlow 1 and this package write them.
"""

import stat
import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c

from runmanager.errors import RecordError
from runmanager.results.tfevents.protobuf import fields, hyperparameters, plugin_data, scalar_of_tensor, varint

__all__ = ["EventFolder", "Series", "is_event_file", "read_event_files"]

_CHUNK = 1 << 22  # bytes read at once
_LENGTH, _CRC, _DOUBLE, _FLOAT = struct.Struct("<Q"), struct.Struct("<I"), struct.Struct("<d"), struct.Struct("<f")
_LONGEST = 1 << 31  # bytes: no message of protocol buffers is longer
_HEADER, _TRAILER = 12, 4  # bytes of a record around its message
_MASK_DELTA = 0xA282EAD8
_TIME_KEY, _STEP_KEY, _SUMMARY_KEY = 0x09, 0x10, 0x2A  # fields 1 (a double), 2 (a varint) and 5 of an event
_VALUE_KEY, _TAG_KEY, _FLOAT_KEY = 0x0A, 0x0A, 0x15  # field 1 of a summary, fields 1 and 2 of a value
_MOST_GROUPS = 8  # of one length: to try more would take longer than to read the event
_TIME_END = 9
_SIGN = 1 << 63
_HPARAMS_TAG = "_hparams_/session_start_info"
_SCALARS = b"scalars"


@dataclass(frozen=True)
class Series:
    """The values of a tag in the order in which they were written, with their steps and times (seconds since 1970)."""

    steps: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))
    times: "array[float]" = field(default_factory=lambda: array("d"))


@dataclass
class EventFolder:
    """What the event files of one folder hold: scalars by tag, and hyperparameters; `damage` says where reading ended.

    A record that is not whole at the end of a file is no damage: it is being written, or a kill cut it off.
    """

    scalars: dict[str, Series] = field(default_factory=dict)
    hparams: dict[str, Any] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)


def is_event_file(name: str) -> bool:
    """Whether a file of this name is one that TensorBoard would read."""
    return "tfevents" in name


def read_event_files(paths: Iterable[Path]) -> EventFolder:
    """What these files of one folder hold, in their order; of one that cannot be read, that it cannot."""
    reader = _Reader()
    for path in paths:
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                reader.found.damage.append(f"{path} is no file")  # who opened a pipe would wait for its other end
                continue
            with path.open("rb") as file:
                reader.read(file, path)
        except OSError as error:
            reader.found.damage.append(f"{path} cannot be read: {error.strerror or error}")
    return reader.found


class _Reader:
    """Reads event files one after another into one `EventFolder`."""

    def __init__(self) -> None:
        self.found = EventFolder()
        self._known: dict[bytes, _Pattern] = {}
        self._groups: dict[int, list[_Group]] = {}  # by what an event has of bytes behind time and step
        self._lengths: list[int] = []
        self._tensors: set[str] = set()

    def read(self, file: BinaryIO, path: Path) -> None:
        """Read a file to its end, or to the first record that is damaged: what follows it has no beginning."""
        rest = b""
        needed = _CHUNK
        try:
            while part := file.read(needed):
                data = rest + part
                at, missing = self._scan(data)
                rest = data[at:]
                needed = max(_CHUNK, missing)
        except (RecordError, IndexError, struct.error) as error:
            self.found.damage.append(f"{path} is damaged, and was read up to there: {error}")

    def _scan(self, data: bytes) -> tuple[int, int]:
        """Read the whole records at the beginning; returns where the next one begins, and the bytes it lacks.

        This loop is all that reading costs, so it looks nothing up twice and calls nothing that it could do without.
        """
        at, end = 0, len(data)
        checksum, known, lengths = google_crc32c.value, self._known, self._lengths
        length_at, crc_at, double_at = _LENGTH.unpack_from, _CRC.unpack_from, _DOUBLE.unpack_from
        while at + _HEADER <= end:
            (length,) = length_at(data, at)
            stop = at + _HEADER + length
            if stop + _TRAILER > end:
                _check_length(data, at)
                return at, stop + _TRAILER - end
            message = data[at + _HEADER : stop]
            crc = checksum(message)
            if ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF != crc_at(data, stop)[0]:
                raise RecordError("a record does not fit its checksum")
            at = stop + _TRAILER
            rest = 0
            if length > _TIME_END and message[0] == _TIME_KEY:
                rest = _TIME_END
                step = 0  # it is left out
                if message[rest] == _STEP_KEY:
                    step = message[rest + 1]
                    rest += 2
                    if step >= 0x80:
                        step, rest = varint(message, _TIME_END + 1)
                for tail in lengths:
                    pattern = known.get(message[rest:-tail])
                    if pattern is not None and pattern.tail == message[pattern.end :]:
                        pattern.steps(step if step < _SIGN else step - 2 * _SIGN)
                        pattern.times(double_at(message, 1)[0])
                        pattern.values(pattern.number_at(message, length - tail)[0])
                        break
                else:
                    if not self._is_of_group(message, rest, step):
                        self._event(message, rest)
            else:
                self._event(message, 0)
        return at, 0

    def _event(self, message: bytes, rest: int) -> None:
        """Any event: time, step, and what its summary holds. `rest` is where the first two end, if they begin it."""
        time, step, summaries = 0.0, 0, []
        for kind, value in fields(message):
            if kind == 1 and isinstance(value, bytes):
                (time,) = _DOUBLE.unpack(value)
            elif kind == 2 and isinstance(value, int):
                step = value if value < _SIGN else value - 2 * _SIGN
            elif kind == 5 and isinstance(value, bytes):
                summaries.append(value)
        values = [
            value for summary in summaries for kind, value in fields(summary) if kind == 1 and isinstance(value, bytes)
        ]
        several: list[Series] = []
        for value in values:
            tag, number, layout = self._scalar(value)
            if number is None:
                continue
            series = self.found.scalars.setdefault(tag, Series())
            series.steps.append(step)
            series.times.append(time)
            series.values.append(number)
            if rest and layout and len(values) == 1:
                self._remember(message, rest, series, struct.pack(layout, number))
            several.append(series)
        if rest and 1 < len(several) == len(values) and (places := _places(message, rest)):
            alike = self._groups.setdefault(len(message) - rest, [])
            if len(alike) < _MOST_GROUPS:
                alike.append(_Group(message, rest, places, several))

    def _is_of_group(self, message: bytes, rest: int, step: int) -> bool:
        """Read an event of several values, if its like was read before; `step` is not made signed yet."""
        for group in self._groups.get(len(message) - rest, ()):
            parts = group.layout.unpack_from(message, rest)
            if parts[::2] == group.fixed:
                (time,) = _DOUBLE.unpack_from(message, 1)
                signed = step if step < _SIGN else step - 2 * _SIGN
                for (steps, times, values), number in zip(group.series, parts[1::2], strict=True):
                    steps(signed)
                    times(time)
                    values(number)
                return True
        return False

    def _remember(self, message: bytes, rest: int, series: Series, number: bytes) -> None:
        """Know an event again that is the same but for time, step and value: `number` as it stands there once."""
        if message.count(number, rest) != 1 or message[rest] != _SUMMARY_KEY:
            return
        at = message.index(number, rest)
        tail = len(message) - at
        self._known[message[rest:at]] = _Pattern(series, message[at + len(number) :], len(number))
        if tail not in self._lengths:
            self._lengths.append(tail)

    def _scalar(self, value: bytes) -> tuple[str, float | None, str]:
        """The tag of a summary's value, its number, and how that lies there, where it takes the same room each time."""
        tag, number, tensor, metadata = "", None, None, b""
        for kind, content in fields(value):
            if kind == 1 and isinstance(content, bytes):
                tag = content.decode(errors="replace")
            elif kind == 2 and isinstance(content, bytes):
                (number,) = _FLOAT.unpack(content)
            elif kind == 8 and isinstance(content, bytes):
                tensor = content
            elif kind == 9 and isinstance(content, bytes):
                metadata = content
        if tag == _HPARAMS_TAG and metadata:
            self.found.hparams.update(hyperparameters(metadata))
        if metadata and plugin_data(metadata).get(1) == _SCALARS:
            self._tensors.add(tag)
        if number is not None:
            return tag, number, "<f"
        return (tag, *scalar_of_tensor(tensor)) if tensor is not None and tag in self._tensors else (tag, None, "")


class _Pattern:
    """What is always the same of a tag's events: `tail` follows the value, which takes so many bytes."""

    __slots__ = ("end", "number_at", "steps", "tail", "times", "values")

    def __init__(self, series: Series, tail: bytes, size: int) -> None:
        self.tail = tail
        self.end = -len(tail) if tail else 1 << 62
        self.number_at = (_FLOAT if size == _FLOAT.size else _DOUBLE).unpack_from
        self.steps, self.times, self.values = series.steps.append, series.times.append, series.values.append


class _Group:
    """What is always the same of an event with floats at several `places`: `fixed` stands before each of them."""

    __slots__ = ("fixed", "layout", "series")

    def __init__(self, message: bytes, rest: int, places: Sequence[int], series: Sequence[Series]) -> None:
        ends = [rest, *(place + _FLOAT.size for place in places)]
        gaps = (place - end for place, end in zip(places, ends, strict=False))
        self.layout = struct.Struct("<" + "".join(f"{gap}sf" for gap in gaps))
        self.fixed = self.layout.unpack_from(message, rest)[::2]
        self.series = [(each.steps.append, each.times.append, each.values.append) for each in series]


def _places(message: bytes, rest: int) -> list[int]:
    """Where the floats lie in an event whose summary has values of a tag and a float alone; nowhere in any other.

    `message` is one that could be read, its values all numbers.
    """
    places: list[int] = []
    if message[rest] != _SUMMARY_KEY:
        return places
    length, at = varint(message, rest + 1)
    if at + length != len(message):
        return []
    while at < len(message):
        if message[at] != _VALUE_KEY:
            return []
        length, at = varint(message, at + 1)
        end = at + length
        if message[at] != _TAG_KEY:
            return []
        length, at = varint(message, at + 1)
        place = at + length + 1
        if place + _FLOAT.size != end or message[place - 1] != _FLOAT_KEY:
            return []
        places.append(place)
        at = end
    return places


def _check_length(data: bytes, at: int) -> None:
    """Trust the length of a record that is not whole only if its checksum fits: the file may be no event file."""
    length, masked = _LENGTH.unpack_from(data, at)[0], _CRC.unpack_from(data, at + 8)[0]
    crc = google_crc32c.value(data[at : at + 8])
    if ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF != masked or length > _LONGEST:
        raise RecordError(f"a record of {length:,} bytes does not fit its checksum")
