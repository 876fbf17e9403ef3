"""The one number in a serialised TensorFlow tensor, read without TensorFlow."""

import struct

from runmanager.results.tfevents.protobuf import fields, varint

__all__ = ["number_of_tensor"]

_DTYPE, _SHAPE, _CONTENT = 1, 2, 4
_DIM = 2  # a field of the shape
# By the number of its type: how it lies in `tensor_content`, and in which field it stands otherwise.
_FORMATS = {
    **{1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 4: ("<B", 7), 5: ("<h", 7), 6: ("<b", 7), 9: ("<q", 10)},
    **{10: ("<?", 11), 14: ("<H", 13), 17: ("<H", 7), 19: ("<e", 13), 22: ("<I", 16), 23: ("<Q", 17)},
}
_BFLOAT16, _HALF = 14, 19
_SIGNED = (3, 5, 6, 9)


def number_of_tensor(data: bytes) -> tuple[float | None, str]:
    """The value of a `TensorProto` without dimensions, and how `struct` lays it out if it is a float or a double.

    None for a tensor with dimensions, or of texts or complex numbers. Raises `RecordError` or `struct.error` for what
    is no such message.
    """
    dtype, content = 0, b""
    values: dict[int, int | bytes] = {}
    for number, value in fields(data):
        if number == _DTYPE and isinstance(value, int):
            dtype = value
        elif number == _SHAPE and isinstance(value, bytes):
            if any(kind == _DIM for kind, _ in fields(value)):
                return None, ""
        elif number == _CONTENT and isinstance(value, bytes):
            content = value
        else:
            values[number] = value
    if dtype not in _FORMATS:
        return None, ""
    layout, number = _FORMATS[dtype]
    value = content or values.get(number, 0)  # zero is left out
    is_float = layout in ("<f", "<d")
    if isinstance(value, bytes) and value and (content or is_float):
        whole = struct.unpack(layout, value)[0]
        return _of_bits(dtype, whole) if dtype == _BFLOAT16 else float(whole), layout if is_float else ""
    return _of_bits(dtype, _first_varint(value)), ""


def _of_bits(dtype: int, bits: int) -> float:
    """A number from the varint that stands for it."""
    if dtype == _BFLOAT16:
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    if dtype == _HALF:
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    return float(bits - (1 << 64) if dtype in _SIGNED and bits >= 1 << 63 else bits)


def _first_varint(value: int | bytes) -> int:
    """A varint, also where it is the first of a packed field."""
    return value if isinstance(value, int) else varint(value, 0)[0] if value else 0
