"""Event files: records as TensorFlow specifies them, one event per logged step, truncation at complete events."""

import math
import os
import struct
from array import array
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses
from runmanager.tracking.tensorboard import event_writer as module
from runmanager.tracking.tensorboard.event_writer import EventWriter, truncate_events

VALUES = st.floats(width=32, allow_nan=False)


def read_events(path: Path) -> list[Event]:
    """Events as TensorBoard reads them, which checks both checksums of each record."""
    return list(LegacyEventFileLoader(str(path)).Load())


def raw_records(path: Path) -> list[tuple[bytes, bytes, bytes]]:
    """Header (length and its checksum), data and footer (the data's checksum) of each record."""
    content, found = path.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        found.append((content[:12], content[12 : 12 + length], content[12 + length : 16 + length]))
        content = content[16 + length :]
    return found


def masked(crc: int) -> bytes:
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def test_the_checksum_is_crc_32c() -> None:
    assert google_crc32c.value(b"123456789") == 0xE3069283  # RFC 3720, appendix B.4


@settings(max_examples=40)
@given(
    tag=st.text(min_size=1, max_size=200),
    pairs=st.lists(st.tuples(st.integers(1, 2**50), VALUES), max_size=20),
    wall_time=st.floats(1.0, 1e10),
)
def test_a_series_has_one_message_per_step(
    tmp_path_factory: pytest.TempPathFactory, tag: str, pairs: list[tuple[int, float]], wall_time: float
) -> None:
    steps, values = sorted(step for step, _ in pairs), [value for _, value in pairs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.time, "time", lambda: wall_time)
        writer = EventWriter(folder := tmp_path_factory.mktemp("run"))
        writer.series(tag, LoggedLosses(steps, array("f", values)))
        writer.close()
    _version, *found = raw_records(min(folder.iterdir()))
    assert len(found) == len(steps)
    for (header, data, footer), step, value in zip(found, steps, values, strict=True):
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        assert data == Event(wall_time=wall_time, step=step, summary=summary).SerializeToString()
        assert header[8:] == masked(google_crc32c.value(header[:8]))
        assert footer == masked(google_crc32c.value(data))


def test_zeros_infinities_and_nan_are_read_back(tmp_path: Path) -> None:
    values = array("f", [0.0, -0.0, math.nan, math.inf])
    writer = EventWriter(tmp_path)
    writer.series("a", LoggedLosses(range(4), values))
    writer.close()
    _version, *found = read_events(min(tmp_path.iterdir()))
    assert [event.step for event in found] == [0, 1, 2, 3]
    stored = [event.summary.value[0].simple_value for event in found]
    assert [struct.pack("<f", each) for each in stored] == [struct.pack("<f", each) for each in values]


def test_a_long_series_is_complete(tmp_path: Path) -> None:
    steps = range(3, 3 + 7 * 40_000, 7)
    writer = EventWriter(tmp_path)
    writer.series("step/loss", LoggedLosses(steps, array("f", [1.5] * len(steps))))
    writer.close()
    _version, *found = read_events(min(tmp_path.iterdir()))
    assert [event.step for event in found] == list(steps)


def test_truncating_keeps_complete_events(tmp_path: Path) -> None:
    def write(count: int, existing: Path | None = None) -> Path:
        writer = EventWriter(tmp_path, existing)
        for step in range(count):
            writer.scalars({"a": 1.0}, step)
        writer.close()
        return min(tmp_path.glob("events*"))

    path = write(3)
    whole = path.stat().st_size
    path = write(4, existing=path)
    assert path.stat().st_size > whole
    truncate_events(path, whole)
    assert path.stat().st_size == whole
    assert [event.step for event in read_events(path)] == [0, 0, 1, 2]
    truncate_events(path, whole + 1000)  # the end of the file was lost: the rest stays as it is
    assert path.stat().st_size == whole
    os.truncate(path, whole - 5)  # in the middle of an event
    truncate_events(path, whole)
    path = write(1, existing=path)
    assert [event.step for event in read_events(path)] == [0, 0, 1, 0]
    os.truncate(path, 3)
    truncate_events(path, whole)
    assert path.stat().st_size == 0
    assert [event.file_version for event in read_events(write(1, existing=path))] == ["brain.Event:2", ""]
