"""Scalars and hyperparameters of TensorBoard event files, read without TensorBoard.

A record is a length, the checksum of the length, an `Event` message and its checksum (tensorflow/core/lib/io/
record_writer.h). Scalars are those of `SummaryWriter` (`simple_value`) and of TensorFlow 2 (a tensor of one number of
the plugin `scalars`). Field numbers are those of tensorboard/compat/proto.

The reader is optimised for repeated tags: events of one tag differ only in time, step and value, so the rest is decoded
once and looked up afterwards; the same holds for events of several values, as TensorFlow 1 and this package write them.
It is 10 to 20 times as fast as TensorBoard's `EventAccumulator` (docs/benchmarks.md, event_reading). With TensorBoard's
compiled messages it would be 7 to 10 times as fast, and `table --events` would have to import protobuf.
"""

import math
import os
import stat
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c

from runmanager.errors import RecordError
from runmanager.results.tfevents.protobuf import fields, hyperparameters, plugin_data, scalar_of_tensor, varint
from runmanager.results.tfevents.restarts import Series, WrittenFile, drop_from, values_that_count

__all__ = ["EventFolder", "Series", "is_event_file", "read_event_files", "writer_of"]

_CHUNK_BYTES = 1 << 22
_LENGTH, _CRC, _DOUBLE, _FLOAT = struct.Struct("<Q"), struct.Struct("<I"), struct.Struct("<d"), struct.Struct("<f")
_MAX_MESSAGE_BYTES = 1 << 31  # the limit of protocol buffers
_HEADER_BYTES, _TRAILER_BYTES = 12, 4  # of a record, around its message
_MASK_DELTA = 0xA282EAD8
_TIME_KEY, _STEP_KEY, _SUMMARY_KEY = 0x09, 0x10, 0x2A  # fields 1 (a double), 2 (a varint) and 5 of an event
_VALUE_KEY, _TAG_KEY, _FLOAT_KEY = 0x0A, 0x0A, 0x15  # field 1 of a summary, fields 1 and 2 of a value
_MAX_TEMPLATES = 8  # per length: trying more would take longer than decoding the event
_TIME_END = 9  # the step follows the time
_SIGN = 1 << 63
_HPARAMS_TAG = "_hparams_/session_start_info"
_SCALARS = b"scalars"
_SESSION_LOG = 7  # a field of an event
_SESSION_START = (1, 1)  # its status
_SOURCE_FIELD = 10  # of an event: the program that wrote the file
_MAX_FIRST_BYTES = 4096


@dataclass
class EventFolder:
    """Contents of the event files of one folder: scalars by tag, hyperparameters, and a line for each damaged file.

    Scalars are without those that a resumed process wrote again (`values_that_count`); `replaced` counts these by tag.

    An incomplete record at the end of a file does not count as damage: it is still being written, or was cut off when
    its process was killed.
    """

    scalars: dict[str, Series] = field(default_factory=dict)
    hparams: dict[str, Any] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    replaced: dict[str, int] = field(default_factory=dict)


def is_event_file(name: str) -> bool:
    """Whether TensorBoard would read a file of this name."""
    return "tfevents" in name


def writer_of(path: Path) -> str:
    """The program that an event file, a regular file, names as its writer in its first record; empty without one."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
            length = _LENGTH.unpack_from(header)[0]
            first = dict(fields(file.read(length))) if length <= _MAX_FIRST_BYTES else {}
        source = first.get(_SOURCE_FIELD, b"")
        writer = dict(fields(source)).get(1, b"") if isinstance(source, bytes) else b""
        return writer.decode(errors="replace") if isinstance(writer, bytes) else ""
    except (OSError, RecordError, struct.error):
        return ""


def read_event_files(paths: Iterable[Path]) -> EventFolder:
    """Read the event files of one folder; a file that cannot be read becomes a line of `damage`.

    Files that began at the same time are in the given order.
    """
    reader = _Reader()
    files: list[WrittenFile] = []
    for path in paths:
        try:
            if not stat.S_ISREG(mode := path.lstat().st_mode):
                is_link = stat.S_ISLNK(mode)  # it may lead anywhere; opening a pipe would block
                what = "a link, which is not followed" if is_link else "not a regular file"
                reader.found.damage.append(f"{path} is {what}")
                continue
            with path.open("rb") as file:
                files.append(reader.read(file, path))
        except OSError as error:
            reader.found.damage.append(f"{path} cannot be read: {error.strerror or error}")
    reader.found.scalars, reader.found.replaced = values_that_count(files)
    return reader.found


class _Reader:
    """Reads event files one after another; `found` has all but their scalars."""

    def __init__(self) -> None:
        self.found = EventFolder()
        self._scalar_tags: set[str] = set()  # of tensors: only the first event of a tag names the plugin
        self._begin_file()

    def _begin_file(self) -> None:
        self._scalars: dict[str, Series] = {}
        self._times: list[float] = []  # of decoded events
        self._session_step: int | None = None
        self._single: dict[bytes, _SingleTemplate] = {}  # by the bytes between step and value
        self._multiple: dict[int, list[_MultipleTemplate]] = {}  # by the number of bytes after the step
        self._tail_lengths: list[int] = []  # of the known events of one value: bytes from the value to the end

    def read(self, file: BinaryIO, path: Path) -> WrittenFile:
        """Read a file to its end or to the first damaged record: where the next record begins is then unknown."""
        self._begin_file()
        rest = b""
        needed = _CHUNK_BYTES
        size = os.fstat(file.fileno()).st_size  # a length in the file may be far longer
        try:
            while part := file.read(needed):
                data = rest + part
                at, missing = self._scan(data)
                rest = data[at:]
                needed = max(_CHUNK_BYTES, min(missing, size))
        except (RecordError, IndexError, struct.error) as error:
            self.found.damage.append(f"{path} is damaged, and was read up to there: {error}")
        begin = self._times[0] if self._times and math.isfinite(self._times[0]) else -math.inf
        ends = [max(filter(math.isfinite, each.times), default=begin) for each in self._scalars.values()]
        end = max([begin, *filter(math.isfinite, self._times), *ends])
        return WrittenFile(begin, end, self._scalars, self._session_step)

    def _scan(self, data: bytes) -> tuple[int, int]:
        """Read all complete records; returns where the next one begins and how many bytes of it are missing.

        Nearly all time is spent in this loop, hence the local names and the inlined checks.
        """
        at, end = 0, len(data)
        checksum, templates, tail_lengths = google_crc32c.value, self._single, self._tail_lengths
        unpack_length, unpack_crc, unpack_double = _LENGTH.unpack_from, _CRC.unpack_from, _DOUBLE.unpack_from
        while at + _HEADER_BYTES <= end:
            (length,) = unpack_length(data, at)
            stop = at + _HEADER_BYTES + length
            if stop + _TRAILER_BYTES > end:
                _check_length(data, at)
                return at, stop + _TRAILER_BYTES - end
            message = data[at + _HEADER_BYTES : stop]
            crc = checksum(message)
            if ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF != unpack_crc(data, stop)[0]:
                raise RecordError("a record does not match its checksum")
            at = stop + _TRAILER_BYTES
            rest = 0
            if length > _TIME_END and message[0] == _TIME_KEY:
                rest = _TIME_END
                step = 0  # zero is not written
                if message[rest] == _STEP_KEY:
                    step = message[rest + 1]
                    rest += 2
                    if step >= 0x80:
                        step, rest = varint(message, _TIME_END + 1)
                for tail_length in tail_lengths:
                    template = templates.get(message[rest:-tail_length])
                    if template is not None and template.tail == message[template.end :]:
                        template.add_step(step if step < _SIGN else step - 2 * _SIGN)
                        template.add_time(unpack_double(message, 1)[0])
                        template.add_value(template.unpack_value(message, length - tail_length)[0])
                        break
                else:
                    if not self._read_by_template(message, rest, step):
                        self._decode(message, rest)
            else:
                self._decode(message, 0)
        return at, 0

    def _decode(self, message: bytes, rest: int) -> None:
        """Decode any event. `rest` is where time and step end if the message starts with them, else 0."""
        time, step, summaries, is_session_start = 0.0, 0, [], False
        for kind, value in fields(message):
            if kind == 1 and isinstance(value, bytes):
                (time,) = _DOUBLE.unpack(value)
            elif kind == 2 and isinstance(value, int):
                step = value if value < _SIGN else value - 2 * _SIGN
            elif kind == 5 and isinstance(value, bytes):
                summaries.append(value)
            elif kind == _SESSION_LOG and isinstance(value, bytes):
                is_session_start = _SESSION_START in fields(value)
        self._times.append(time)
        if is_session_start:
            self._start_session(step)
        values = [
            value for summary in summaries for kind, value in fields(summary) if kind == 1 and isinstance(value, bytes)
        ]
        found: list[Series] = []
        for value in values:
            tag, number, layout = self._scalar(value)
            if number is None:
                continue
            series = self._scalars.setdefault(tag, Series())
            series.steps.append(step)
            series.times.append(time)
            series.values.append(number)
            if rest and layout and len(values) == 1:
                self._add_template(message, rest, series, struct.pack(layout, number))
            found.append(series)
        if rest and 1 < len(found) == len(values) and (offsets := _float_offsets(message, rest)):
            templates = self._multiple.setdefault(len(message) - rest, [])
            if len(templates) < _MAX_TEMPLATES:
                templates.append(_MultipleTemplate(message, rest, offsets, found))

    def _start_session(self, step: int) -> None:
        """Drop what the file has from this step on. The series stay the same objects, to which templates add."""
        self._session_step = step if self._session_step is None else min(step, self._session_step)
        for series in self._scalars.values():
            kept = drop_from(series, step)
            series.steps[:], series.values[:], series.times[:] = kept.steps, kept.values, kept.times

    def _read_by_template(self, message: bytes, rest: int, step: int) -> bool:
        """Read an event of several values if a template fits; `step` is still unsigned."""
        for template in self._multiple.get(len(message) - rest, ()):
            parts = template.layout.unpack_from(message, rest)
            if parts[::2] == template.fixed:
                (time,) = _DOUBLE.unpack_from(message, 1)
                signed = step if step < _SIGN else step - 2 * _SIGN
                for (add_step, add_time, add_value), number in zip(template.series, parts[1::2], strict=True):
                    add_step(signed)
                    add_time(time)
                    add_value(number)
                return True
        return False

    def _add_template(self, message: bytes, rest: int, series: Series, number: bytes) -> None:
        """Keep a template of an event of one value, unless the bytes of its value, `number`, occur more than once."""
        if message.count(number, rest) != 1 or message[rest] != _SUMMARY_KEY:
            return
        at = message.index(number, rest)
        tail_length = len(message) - at
        self._single[message[rest:at]] = _SingleTemplate(series, message[at + len(number) :], len(number))
        if tail_length not in self._tail_lengths:
            self._tail_lengths.append(tail_length)

    def _scalar(self, value: bytes) -> tuple[str, float | None, str]:
        """The tag of a summary value, its number, and the `struct` format of the number if its size is fixed."""
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
            self._scalar_tags.add(tag)
        if number is not None:
            return tag, number, "<f"
        return (tag, *scalar_of_tensor(tensor)) if tensor is not None and tag in self._scalar_tags else (tag, None, "")


class _SingleTemplate:
    """The constant parts of a tag's events: `tail` follows the value, which takes `size` bytes."""

    __slots__ = ("add_step", "add_time", "add_value", "end", "tail", "unpack_value")

    def __init__(self, series: Series, tail: bytes, size: int) -> None:
        self.tail = tail
        self.end = -len(tail) if tail else 1 << 62
        self.unpack_value = (_FLOAT if size == _FLOAT.size else _DOUBLE).unpack_from
        self.add_step, self.add_time, self.add_value = series.steps.append, series.times.append, series.values.append


class _MultipleTemplate:
    """The constant parts of an event with floats at several `offsets`: `fixed` are the bytes before each float."""

    __slots__ = ("fixed", "layout", "series")

    def __init__(self, message: bytes, rest: int, offsets: Sequence[int], series: Sequence[Series]) -> None:
        ends = [rest, *(offset + _FLOAT.size for offset in offsets)]
        gaps = (offset - end for offset, end in zip(offsets, ends, strict=False))
        self.layout = struct.Struct("<" + "".join(f"{gap}sf" for gap in gaps))
        self.fixed = self.layout.unpack_from(message, rest)[::2]
        self.series = [(each.steps.append, each.times.append, each.values.append) for each in series]


def _float_offsets(message: bytes, rest: int) -> list[int]:
    """The offsets of the floats in an event whose values consist of a tag and a float each; empty for other events.

    `message` has been decoded before, and its values are all numbers.
    """
    offsets: list[int] = []
    if message[rest] != _SUMMARY_KEY:
        return offsets
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
        offset = at + length + 1
        if offset + _FLOAT.size != end or message[offset - 1] != _FLOAT_KEY:
            return []
        offsets.append(offset)
        at = end
    return offsets


def _check_length(data: bytes, at: int) -> None:
    """Verify the length of an incomplete record by its checksum: the file might not be an event file.

    Raises `RecordError` if the length does not match, or is longer than any message.
    """
    length, masked = _LENGTH.unpack_from(data, at)[0], _CRC.unpack_from(data, at + 8)[0]
    crc = google_crc32c.value(data[at : at + 8])
    if ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF != masked or length > _MAX_MESSAGE_BYTES:
        raise RecordError(f"a record of {length:,} bytes does not match its checksum")
