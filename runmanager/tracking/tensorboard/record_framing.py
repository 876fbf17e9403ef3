"""The record format of TensorBoard's event files, for one record and for many scalars of one tag at a time.

A record is the length of its data, the masked CRC-32C of the length, the data, and the masked CRC-32C of the data
(tensorflow/core/lib/io/record_writer.h). Data is an `Event` (tensorflow/core/util/event.proto) in protocol buffers.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache

import google_crc32c
import numpy as np
from numpy.typing import NDArray

__all__ = ["framed", "scalar_records"]

_MASK_DELTA = 0xA282EAD8
_AT_ONCE = 1 << 14  # scalars laid out at one time: a megabyte, however many there are

# The fields of the messages: number << 3 | type, in the order in which they are written.
_WALL_TIME, _STEP, _SUMMARY, _VALUE, _TAG, _SIMPLE_VALUE = b"\x09", b"\x10", b"\x2a", b"\x0a", b"\x0a", b"\x15"
_STEP_AT = len(_WALL_TIME) + 8 + len(_STEP)


def framed(data: bytes) -> bytes:
    """`data` as a record."""
    length = struct.pack("<Q", len(data))
    return b"".join((length, _masked(google_crc32c.value(length)), data, _masked(google_crc32c.value(data))))


def scalar_records(tag: str, steps: Sequence[int], values: Sequence[float], *, wall_time: float) -> Iterator[bytes]:
    """Records of a `simple_value` under `tag` for each of `steps`, ascending from 0, a part of them at a time.

    Records whose steps take equally many bytes are the rows of one table: no message is made for each.
    """
    begin = 0
    for num_bytes in range(1, 10):  # of the step, seven bits in each
        end = bisect_left(steps, 1 << 7 * num_bytes, begin)
        for at in range(begin, end, _AT_ONCE):
            numbers = np.asarray(steps[at : min(at + _AT_ONCE, end)], dtype=np.int64)
            floats = np.asarray(values[at : min(at + _AT_ONCE, end)], dtype="<f4")
            yield _table(tag, numbers, floats, num_bytes=num_bytes, wall_time=wall_time)
        begin = end


def _table(
    tag: str, steps: NDArray[np.int64], values: NDArray[np.float32], *, num_bytes: int, wall_time: float
) -> bytes:
    """The records of steps that take `num_bytes` each: equal but for the step, the value, and the checksum of both."""
    data = _data_of_zeros(tag, num_bytes, wall_time)
    pattern = np.frombuffer(framed(data), dtype=np.uint8)
    rows = np.tile(pattern, (len(steps), 1))
    body = rows[:, 12:-4]
    columns = [*range(_STEP_AT, _STEP_AT + num_bytes), *range(len(data) - 4, len(data))]
    for at in range(num_bytes):
        more = 0x80 if at < num_bytes - 1 else 0
        body[:, _STEP_AT + at] = (steps >> 7 * at & 0x7F) | more
    body[:, -4:] = values.reshape(-1, 1).view(np.uint8)
    checksums = np.full(len(steps), google_crc32c.value(data), dtype=np.uint32)
    for column in columns:
        checksums ^= _change(len(data) - 1 - column)[body[:, column]]
    masked = (checksums >> 15 | checksums << 17) + np.uint32(_MASK_DELTA)
    rows[:, -4:] = masked.astype("<u4").reshape(-1, 1).view(np.uint8)
    return rows.tobytes()


def _data_of_zeros(tag: str, num_bytes: int, wall_time: float) -> bytes:
    """The event, with zeros for the `num_bytes` of its step and the four of its value."""
    name = tag.encode()
    value = _TAG + _varint(len(name)) + name + _SIMPLE_VALUE + bytes(4)
    summary = _VALUE + _varint(len(value)) + value
    time = _WALL_TIME + struct.pack("<d", wall_time)
    return time + _STEP + bytes(num_bytes) + _SUMMARY + _varint(len(summary)) + summary


@lru_cache(maxsize=64)
def _change(following: int) -> NDArray[np.uint32]:
    """How each value of a byte, in place of a zero, changes the checksum of data that has `following` bytes after it.

    CRCs are linear: what a byte changes does not depend on the others (Peterson and Brown 1961).
    """
    rest = bytes(following)
    zero = google_crc32c.value(b"\0" + rest)
    return np.array([google_crc32c.value(bytes([byte]) + rest) ^ zero for byte in range(256)], dtype=np.uint32)


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _masked(crc: int) -> bytes:
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF)
