"""TensorBoard's event file: one open handle, appended to, so that a resumed run goes on in its own file."""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from runmanager.records.files.file_errors import explain_disk_full
from runmanager.tracking.tensorboard.record_framing import framed, scalar_records

if TYPE_CHECKING:  # what is served beside the runs is written without torch
    from runmanager.tracking.metrics.loss_buffer import LoggedLosses

__all__ = ["EventWriter", "cut_events"]


class EventWriter:
    """Writes events to the run folder's one event file, going on with the file that is there.

    `existing` is that file, or one to be made under that name. Raises `NoRoomError` where it finds no room.
    """

    def __init__(self, folder: Path, existing: Path | None = None) -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        self._path = existing or folder / name
        fresh = not self._path.exists() or self._path.stat().st_size == 0
        self._file = self._path.open("ab")
        if fresh:
            self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def summary(self, summary: Summary, step: int | None = None) -> None:
        """Add values at a step; without one, at step 0."""
        self._write(Event(wall_time=time.time(), step=step, summary=summary))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add a number each under some tags, in one event."""
        self.summary(Summary(value=[Summary.Value(tag=tag, simple_value=values[tag]) for tag in values]), step)

    def series(self, tag: str, logged: "LoggedLosses") -> None:
        """Add a number for each of many steps."""
        with explain_disk_full(self._path):
            self._file.writelines(scalar_records(tag, logged.steps, logged.values, wall_time=time.time()))

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
            self._file.write(framed(event.SerializeToString()))


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
