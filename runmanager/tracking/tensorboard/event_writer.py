"""Writer of TensorBoard event files: one open file that a resumed run appends to.

A record is the length of its data, the masked CRC-32C of the length, the data, and the masked CRC-32C of the data
(tensorflow/core/lib/io/record_writer.h). The data is a serialised `Event` (tensorflow/core/util/event.proto).
"""

import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tensorboard.compat.proto.event_pb2 import Event, SourceMetadata
from tensorboard.compat.proto.summary_pb2 import Summary

from runmanager.records.files.file_errors import explain_disk_full
from runmanager.records.files.paths import EVENT_WRITER
from runmanager.results.tfevents.reader import masked_checksum

if TYPE_CHECKING:  # the sweep's own event file is written without torch
    from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses

_HEADER_BYTES, _FOOTER_BYTES = 12, 4  # length with its checksum; the data's checksum


class EventWriter:
    """Appends events to a run folder's one event file.

    `existing` is the file to append to; it is created if it does not exist. Without it a new file gets TensorBoard's
    usual name. Raises `NoRoomError` when the disk is full.
    """

    def __init__(self, folder: Path, existing: Path | None = None) -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        self._path = existing or folder / name
        is_new = not self._path.exists() or self._path.stat().st_size == 0
        self._file = self._path.open("ab")
        if is_new:
            source = SourceMetadata(writer=EVENT_WRITER)
            self._write(Event(wall_time=time.time(), file_version="brain.Event:2", source_metadata=source))

    def summary(self, summary: Summary, step: int | None = None, *, wall_time: float | None = None) -> None:
        """Add a summary at a step, by default step 0, and a time (seconds since 1970), by default now."""
        self._write(Event(wall_time=time.time() if wall_time is None else wall_time, step=step, summary=summary))

    def scalars(self, values: Mapping[str, float], step: int, *, wall_time: float | None = None) -> None:
        """Add one number per tag, all in one event."""
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=values[tag]) for tag in values])
        self.summary(summary, step, wall_time=wall_time)

    def series(self, tag: str, logged: "LoggedLosses") -> None:
        """Add one number per step under one tag, an event each."""
        with explain_disk_full(self._path):
            self._file.writelines(_series_records(tag, logged))

    def graph(self, graph: bytes) -> None:
        """Add a serialised GraphDef."""
        self._write(Event(wall_time=time.time(), graph_def=graph))

    def flush(self) -> None:
        with explain_disk_full(self._path):
            self._file.flush()

    def close(self) -> None:
        with explain_disk_full(self._path):
            self._file.close()

    def _write(self, event: Event) -> None:
        with explain_disk_full(self._path):
            self._file.write(_record(event.SerializeToString()))


def truncate_events(path: Path, length: int) -> None:
    """Keep the complete records within the first `length` bytes: fewer if a power cut lost the end of the file."""
    with path.open("r+b") as file:
        limit = min(length, file.seek(0, os.SEEK_END))
        end = file.seek(0)
        while len(header := file.read(8)) == 8:
            next_record = end + _HEADER_BYTES + int(struct.unpack("<Q", header)[0]) + _FOOTER_BYTES
            if next_record > limit:
                break
            end = file.seek(next_record)
        file.truncate(end)


def rewritten_events(data: bytes, replaced: Mapping[str, Summary]) -> bytes:
    """Return the complete records of `data`, part of an event file, with other summaries in place of some tags.

    A tag is replaced where it first appears, as the only one of its event; its time and step stay.
    """
    missing, parts, at = dict(replaced), [], 0
    while at + _HEADER_BYTES <= len(data):
        end = at + _HEADER_BYTES + int(struct.unpack_from("<Q", data, at)[0]) + _FOOTER_BYTES
        if end > len(data):
            break
        record = data[at:end]
        if missing:
            event = Event.FromString(record[_HEADER_BYTES:-_FOOTER_BYTES])
            tags = [value.tag for value in event.summary.value]
            if len(tags) == 1 and (summary := missing.pop(tags[0], None)) is not None:
                event.summary.CopyFrom(summary)
                record = _record(event.SerializeToString())
        parts.append(record)
        at = end
    return b"".join(parts)


def _series_records(tag: str, logged: "LoggedLosses") -> Iterator[bytes]:
    # One message is filled again for each step: a new one would take twice as long.
    event = Event(wall_time=time.time(), summary=Summary(value=[Summary.Value(tag=tag)]))
    value = event.summary.value[0]
    for step, loss in zip(logged.steps, logged.values, strict=True):
        event.step, value.simple_value = step, loss
        yield _record(event.SerializeToString())


def _record(data: bytes) -> bytes:
    return b"".join((_header(len(data)), data, _masked_crc(data)))


@lru_cache(maxsize=64)  # the records of a series differ by a few bytes in length at most
def _header(length: int) -> bytes:
    encoded = struct.pack("<Q", length)
    return encoded + _masked_crc(encoded)


def _masked_crc(data: bytes) -> bytes:
    return struct.pack("<I", masked_checksum(data))
