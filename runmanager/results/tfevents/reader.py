"""Scalars and hyperparameters of TensorBoard event files, read with TensorBoard's messages but without its reader.

A record is a length, the checksum of the length, an `Event` message and its checksum (tensorflow/core/lib/io/
record_writer.h). Scalars are those of `SummaryWriter` (`simple_value`) and of TensorFlow 2 (a tensor of one number of
the plugin `scalars`). docs/benchmarks.md compares the speed with TensorBoard's `EventAccumulator` (event_reading). Of a
folder with several files, a process that resumed a run wrote some values again: `values_that_count` leaves those out.

TensorBoard's messages are imported when a file is read: that takes a quarter of a second.
"""

import math
import os
import stat
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c

from runmanager.errors import RecordError

_BUFFER_BYTES = 1 << 20
_HEADER, _CRC = struct.Struct("<QI"), struct.Struct("<I")  # a message's length and the checksum of that; a checksum
_MAX_MESSAGE_BYTES = 1 << 31  # the limit of protocol buffers
_MASK_DELTA = 0xA282EAD8
_HPARAMS_TAG = "_hparams_/session_start_info"
_SCALARS = "scalars"
_SESSION_START = 1  # a status of `SessionLog`
_MAX_FIRST_BYTES = 4096
# By dtype of a tensor (types.proto): the layout in `tensor_content`, and the field that holds the value otherwise.
_TENSOR_FORMATS = {
    **{1: ("<f", "float_val"), 2: ("<d", "double_val"), 3: ("<i", "int_val"), 4: ("<B", "int_val")},
    **{5: ("<h", "int_val"), 6: ("<b", "int_val"), 9: ("<q", "int64_val"), 10: ("<?", "bool_val")},
    **{14: ("<H", "half_val"), 17: ("<H", "int_val"), 19: ("<e", "half_val")},
    **{22: ("<I", "uint32_val"), 23: ("<Q", "uint64_val")},
}
_BFLOAT16, _HALF = 14, 19
_NEVER = 1 << 63  # above every step


@dataclass(frozen=True)
class Series:
    """The values of a tag in the order written, with their steps and times (in seconds since 1970)."""

    steps: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))
    times: "array[float]" = field(default_factory=lambda: array("d"))


@dataclass(frozen=True)
class WrittenFile:
    """The scalars that a process wrote to one event file by tag, and the times of its first and its last event.

    `session_step` is the lowest step of its session-start records, which PyTorch's writer makes of `purge_step`; None
    without.
    """

    begin: float
    end: float
    scalars: dict[str, Series]
    session_step: int | None = None


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


def masked_checksum(data: bytes) -> int:
    """The checksum of a length or a message as a record holds it."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def writer_of(path: Path) -> str:
    """The program that an event file, a regular file, names as its writer in its first record; empty without one."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    try:
        with path.open("rb") as file:
            length, _ = _HEADER.unpack(file.read(_HEADER.size))
            first = Event.FromString(file.read(length) if length <= _MAX_FIRST_BYTES else b"")
    except (OSError, DecodeError, struct.error):
        return ""
    writer: str = first.source_metadata.writer
    return writer


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
            with path.open("rb", _BUFFER_BYTES) as file:
                files.append(reader.read(file, path))
        except OSError as error:
            reader.found.damage.append(f"{path} cannot be read: {error.strerror or error}")
    reader.found.scalars, reader.found.replaced = values_that_count(files)
    return reader.found


class _Reader:
    """Reads event files one after another; `found` has all but their scalars."""

    def __init__(self) -> None:
        self.found = EventFolder()
        self._scalars: dict[str, Series] = {}  # of the present file
        self._scalar_tags: set[str] = set()  # of tensors: only the first event of a tag names the plugin

    def read(self, file: BinaryIO, path: Path) -> WrittenFile:
        """Read a file to its end or to the first damaged record: where the next record begins is then unknown."""
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto.event_pb2 import Event

        self._scalars = {}
        begin = end = -math.inf
        session_step: int | None = None
        try:
            for number, message in enumerate(_messages(file)):
                event = Event.FromString(message)
                time, step = event.wall_time, event.step
                if number == 0 and math.isfinite(time):
                    begin = time
                if end < time < math.inf:
                    end = time
                if values := event.summary.value:
                    self._add(values, step, time)
                elif event.session_log.status == _SESSION_START:
                    session_step = step if session_step is None else min(step, session_step)
                    self._scalars = {tag: _drop_from(series, step) for tag, series in self._scalars.items()}
        except DecodeError:
            self._damaged(path, "a record holds no event")
        except (RecordError, struct.error) as error:
            self._damaged(path, str(error))
        return WrittenFile(begin, end, self._scalars, session_step)

    def _damaged(self, path: Path, reason: str) -> None:
        self.found.damage.append(f"{path} is damaged, and was read up to there: {reason}")

    def _add(self, values: Sequence[Any], step: int, time: float) -> None:
        """Keep the scalars and hyperparameters among the values of an event."""
        for place in range(len(values)):  # an iterator over messages takes far longer
            value = values[place]
            tag, number = value.tag, value.simple_value
            if not number and not value.HasField("simple_value") and (number := self._special(value, tag)) is None:
                continue
            if (series := self._scalars.get(tag)) is None:
                series = self._scalars[tag] = Series()
            series.steps.append(step)
            series.times.append(time)
            series.values.append(number)

    def _special(self, value: Any, tag: str) -> float | None:
        """Return the number of a tensor that is a scalar, and keep hyperparameters."""
        if tag not in self._scalar_tags:
            about = value.metadata.plugin_data
            if tag == _HPARAMS_TAG:
                self.found.hparams.update(_hyperparameters(about.content))
            if about.plugin_name != _SCALARS:
                return None
            self._scalar_tags.add(tag)
        return _number_of(value.tensor) if value.HasField("tensor") else None


def _messages(file: BinaryIO) -> Iterator[bytes]:
    """The messages of all complete records.

    Raises `RecordError` at one that does not match its checksum. Of an incomplete one at the end, the length has to
    match: the file might not be an event file.
    """
    size = os.fstat(file.fileno()).st_size  # a length in the file may be far longer
    read, checksum, unpack_checksum = file.read, google_crc32c.value, _CRC.unpack_from
    while len(header := read(_HEADER.size)) == _HEADER.size:
        length, length_checksum = _HEADER.unpack(header)
        record = read((length if length < size else size) + _CRC.size)
        if len(record) < length + _CRC.size:
            if masked_checksum(header[:8]) != length_checksum or length > _MAX_MESSAGE_BYTES:
                raise RecordError(f"a record of {length:,} bytes does not match its checksum")
            return
        message = record[:length]
        crc = checksum(message)  # masked as above, but without a call for each record
        if ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF != unpack_checksum(record, length)[0]:
            raise RecordError("a record does not match its checksum")
        yield message


def _number_of(tensor: Any) -> float | None:
    """The value of a `TensorProto` without dimensions; None with dimensions, and for strings and complex numbers.

    Raises `struct.error` if its content has another size than its type.
    """
    if tensor.dtype not in _TENSOR_FORMATS or tensor.tensor_shape.dim:
        return None
    layout, name = _TENSOR_FORMATS[tensor.dtype]
    if tensor.tensor_content:
        value = struct.unpack(layout, tensor.tensor_content)[0]
    else:
        value = next(iter(getattr(tensor, name)), 0)  # zero is not written
        if tensor.dtype == _HALF:
            return float(struct.unpack("<e", struct.pack("<H", value))[0])
    return float(struct.unpack("<f", struct.pack("<I", value << 16))[0] if tensor.dtype == _BFLOAT16 else value)


def _hyperparameters(content: bytes) -> dict[str, Any]:
    """The hyperparameters by name in the content of the HParams plugin's metadata."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found: dict[str, Any] = {}
    for name, value in HParamsPluginData.FromString(content).session_start_info.hparams.items():
        kind = value.WhichOneof("kind")
        number = value.number_value
        if kind == "number_value":
            found[name] = int(number) if number.is_integer() and abs(number) < 1 << 53 else number
        else:
            found[name] = getattr(value, kind) if kind in ("string_value", "bool_value") else None
    return found


def values_that_count(files: Iterable[WrittenFile]) -> tuple[dict[str, Series], dict[str, int]]:
    """Return the values of each tag that count, and how many of each tag were written again without a session start.

    A session start at a step replaces all that earlier files have from this step on, as in TensorBoard. A file without
    one replaces, of each tag that it has at several steps, what it wrote again: all from its first step on, in files
    whose last event came before its own first one. So nothing is replaced by a process that wrote at the same time, nor
    by a tag with a single step, such as a test at step 0. Values are in the order of their files' beginnings.
    """
    ordered = sorted(files, key=lambda file: file.begin)
    begins = [file.begin for file in ordered]
    purged = _lowest_from(_NEVER if file.session_step is None else file.session_step for file in ordered)
    counted: dict[str, Series] = {}
    replaced: dict[str, int] = {}
    for tag in dict.fromkeys(tag for file in ordered for tag in file.scalars):
        rewritten = _lowest_from(_first_rewritten(file, tag) for file in ordered)
        parts: list[Series] = []
        for number, file in enumerate(ordered):
            if (series := file.scalars.get(tag)) is not None:
                kept = _drop_from(series, purged[number + 1])
                parts.append(_drop_from(kept, rewritten[bisect_right(begins, file.end)]))
                if (num_replaced := len(kept.steps) - len(parts[-1].steps)) > 0:
                    replaced[tag] = replaced.get(tag, 0) + num_replaced
        if (whole := _joined([part for part in parts if part.steps])) is not None:
            counted[tag] = whole
    return counted, replaced


def _first_rewritten(file: WrittenFile, tag: str) -> int:
    """Return the step from which a file without a session start replaces the values of earlier ones."""
    series = file.scalars.get(tag)
    if series is None or file.session_step is not None:
        return _NEVER
    first = min(series.steps)
    return first if first < max(series.steps) else _NEVER


def _lowest_from(steps: Iterable[int]) -> list[int]:
    """Return the lowest of all steps from each place on, and at the end that of none."""
    return [*accumulate(reversed([*steps, _NEVER]), min)][::-1]


def _drop_from(series: Series, step: int) -> Series:
    """Return the values before `step`."""
    if max(series.steps, default=-_NEVER) < step:
        return series
    kept = [place for place, at in enumerate(series.steps) if at < step]
    steps, values, times = series.steps, series.values, series.times
    return Series(
        array("q", [steps[place] for place in kept]),
        array("d", [values[place] for place in kept]),
        array("d", [times[place] for place in kept]),
    )


def _joined(parts: Sequence[Series]) -> Series | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    whole = Series()
    for part in parts:
        whole.steps.extend(part.steps)
        whole.values.extend(part.values)
        whole.times.extend(part.times)
    return whole
