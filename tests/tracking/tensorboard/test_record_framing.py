"""Records laid out many at a time are those that protocol buffers make one by one, and their checksums hold."""

import math
import struct

import google_crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from runmanager.tracking.tensorboard.record_framing import framed, scalar_records

VALUES = st.floats(width=32, allow_nan=False)


def one_by_one(tag: str, steps: list[int], values: list[float], wall_time: float) -> bytes:
    records = []
    for step, value in zip(steps, values, strict=True):
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        records.append(framed(Event(wall_time=wall_time, step=step, summary=summary).SerializeToString()))
    return b"".join(records)


def test_a_record_has_the_checksums_of_the_format() -> None:
    data = b"123456789"  # whose CRC-32C is 0xE3069283 (RFC 3720, B.4, and every table of CRCs)
    assert google_crc32c.value(data) == 0xE3069283
    masked = (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert framed(data)[8 + 4 :] == data + struct.pack("<I", masked)
    assert framed(data)[:8] == struct.pack("<Q", 9)


@settings(max_examples=40)
@given(
    tag=st.text(min_size=1, max_size=200),
    pairs=st.lists(st.tuples(st.integers(1, 2**50), VALUES), max_size=20),
    wall_time=st.floats(1.0, 1e10),
)
def test_a_series_is_byte_for_byte_what_messages_make(
    tag: str, pairs: list[tuple[int, float]], wall_time: float
) -> None:
    steps, values = sorted(step for step, _ in pairs), [value for _, value in pairs]
    expected = one_by_one(tag, steps, values, wall_time)
    assert b"".join(scalar_records(tag, steps, values, wall_time=wall_time)) == expected


def test_zeros_and_what_is_no_number_are_read_back() -> None:
    values = [0.0, -0.0, math.nan, math.inf]
    (rows,) = scalar_records("a", range(4), values, wall_time=1.0)
    size = len(rows) // 4
    for step in range(4):
        data = rows[step * size + 12 : (step + 1) * size - 4]
        assert framed(data) == rows[step * size : (step + 1) * size]
        event = Event.FromString(data)
        assert event.step == step and event.summary.value[0].tag == "a"
        assert struct.pack("<f", event.summary.value[0].simple_value) == struct.pack("<f", values[step])


def test_a_long_series_comes_in_parts_and_none_is_left_out() -> None:
    steps = range(3, 3 + 7 * 40_000, 7)
    parts = list(scalar_records("step/loss", steps, [1.5] * len(steps), wall_time=1.0))
    assert len(parts) > 3
    rest, found = memoryview(b"".join(parts)), []
    while rest:
        (length,) = struct.unpack("<Q", rest[:8])
        found.append(Event.FromString(bytes(rest[12 : 12 + length])).step)
        rest = rest[16 + length :]
    assert found == list(steps)
