"""The wire format of protocol buffers, read field by field: so much of a message as somebody asks for, and no more.

The format: protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator

from runmanager.errors import RecordError

__all__ = ["fields", "varint"]

_MAX_SHIFT = 63  # a varint has ten bytes at most
_BITS = (1 << 64) - 1  # of a number: what is beyond them is not looked at

Field = tuple[int, int | bytes]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends. Raises `RecordError` where it does not end."""
    number = shift = 0
    try:
        while (byte := data[at]) >= 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if shift > _MAX_SHIFT:
                raise RecordError("a number has no end")
    except IndexError:
        raise RecordError("a message ends within a number") from None
    return (number | byte << shift) & _BITS, at + 1


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a message in order: (number, value).

    A varint is an int, not made signed; all else is bytes: eight or four of a fixed number, or what a length precedes.
    Raises `RecordError` for what is no message.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            number, at = varint(data, at)
            yield key >> 3, number
            continue
        if kind == 2:
            length, at = varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise RecordError(f"a field is of kind {kind}, which there is not")
        if at + length > end:
            raise RecordError("a message ends within a field")
        yield key >> 3, data[at : at + length]
        at += length
