"""TensorBoard's event file: one open handle, appended to, so that a resumed run goes on in its own file.

The framing is TensorFlow's record format: length, masked CRC-32C of the length, data, masked CRC-32C of the data
(tensorflow/core/lib/io/record_writer.h).
"""

import os
import socket
import struct
import time
from pathlib import Path

import google_crc32c
from tensorboard.compat.proto.event_pb2 import Event, TaggedRunMetadata
from tensorboard.compat.proto.summary_pb2 import Summary

__all__ = ["EventWriter", "cut_events"]

_MASK_DELTA = 0xA282EAD8


class EventWriter:
    """Writes events to the run folder's one event file, going on with the file that is there."""

    def __init__(self, folder: Path, existing: Path | None = None) -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        path = existing or folder / name
        fresh = not path.exists() or path.stat().st_size == 0
        self._file = path.open("ab")
        if fresh:
            self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def summary(self, summary: Summary, step: int | None = None) -> None:
        """Add values at a step; without one, at step 0."""
        self._write(Event(wall_time=time.time(), step=step, summary=summary))

    def scalar(self, tag: str, value: float, step: int) -> None:
        """Add one number."""
        self.summary(Summary(value=[Summary.Value(tag=tag, simple_value=value)]), step)

    def graph(self, graph: bytes, run_metadata: bytes) -> None:
        """Add a serialised GraphDef and the RunMetadata that belongs to it."""
        self._write(Event(wall_time=time.time(), graph_def=graph))
        tagged = TaggedRunMetadata(tag="step1", run_metadata=run_metadata)
        self._write(Event(wall_time=time.time(), tagged_run_metadata=tagged))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _write(self, event: Event) -> None:
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        self._file.write(length + _masked_crc(length) + data + _masked_crc(data))


def cut_events(path: Path, length: int) -> None:
    """Keep the whole events within the first `length` bytes: fewer where a power cut lost the file's end."""
    with path.open("r+b") as file:
        limit = min(length, file.seek(0, os.SEEK_END))
        end = file.seek(0)
        while len(header := file.read(8)) == 8:
            following = end + 16 + int(struct.unpack("<Q", header)[0])  # two checksums of 4 bytes beside the length
            if following > limit:
                break
            end = file.seek(following)
        file.truncate(end)


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF)
