"""Protocol buffer messages of event files, decoded without protobuf: fields, tensors of one number, hyperparameters.

Wire format: protobuf.dev/programming-guides/encoding. Field and type numbers: tensorboard/compat/proto and
tensorboard/plugins/hparams.
"""

import struct
from collections.abc import Iterator
from typing import Any

from runmanager.errors import RecordError

__all__ = ["fields", "hyperparameters", "plugin_data", "scalar_of_tensor", "varint"]

_MAX_SHIFT = 63  # a varint has at most ten bytes
_BITS = (1 << 64) - 1  # bits beyond the 64th are ignored
_DOUBLE = struct.Struct("<d")

_DTYPE, _SHAPE, _CONTENT = 1, 2, 4  # fields of a tensor
_DIM = 2  # a field of the shape
# By dtype: the layout in `tensor_content`, and the field that holds the value otherwise.
_FORMATS = {
    **{1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 4: ("<B", 7), 5: ("<h", 7), 6: ("<b", 7), 9: ("<q", 10)},
    **{10: ("<?", 11), 14: ("<H", 13), 17: ("<H", 7), 19: ("<e", 13), 22: ("<I", 16), 23: ("<Q", 17)},
}
_BFLOAT16, _HALF = 14, 19
_SIGNED = (3, 5, 6, 9)

Field = tuple[int, int | bytes]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode the varint that starts at `at`; returns it and its end. Raises `RecordError` if it is not terminated."""
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
    """The fields of a message in order: (field number, value).

    A varint is an unsigned int. Every other value is bytes: the four or eight bytes of a fixed-width number, or the
    content of a length-delimited field. Raises `RecordError` if `data` is not a message.
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
            raise RecordError(f"a field has the unknown wire type {kind}")
        if at + length > end:
            raise RecordError("a message ends within a field")
        yield key >> 3, data[at : at + length]
        at += length


def scalar_of_tensor(data: bytes) -> tuple[float | None, str]:
    """The value of a `TensorProto` without dimensions, and its `struct` format if it is a float or a double.

    None for a tensor with dimensions, and for strings and complex numbers. Raises `RecordError` or `struct.error` if
    `data` is not such a message.
    """
    dtype, content = 0, b""
    values: dict[int, int | bytes] = {}
    for number, value in fields(data):
        if number == _DTYPE and isinstance(value, int):
            dtype = value
        elif number == _SHAPE and isinstance(value, bytes):
            if any(field_number == _DIM for field_number, _ in fields(value)):
                return None, ""
        elif number == _CONTENT and isinstance(value, bytes):
            content = value
        else:
            values[number] = value
    if dtype not in _FORMATS:
        return None, ""
    layout, number = _FORMATS[dtype]
    value = content or values.get(number, 0)  # zero is not written
    is_float = layout in ("<f", "<d")
    if isinstance(value, bytes) and value and (content or is_float):
        whole = struct.unpack(layout, value)[0]
        return _from_bits(dtype, whole) if dtype == _BFLOAT16 else float(whole), layout if is_float else ""
    return _from_bits(dtype, _first_varint(value)), ""


def _from_bits(dtype: int, bits: int) -> float:
    """The number that a varint field of this dtype stores as `bits`."""
    if dtype == _BFLOAT16:
        return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
    if dtype == _HALF:
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    return float(bits - (1 << 64) if dtype in _SIGNED and bits >= 1 << 63 else bits)


def _first_varint(value: int | bytes) -> int:
    """The varint itself, or the first one of a packed field."""
    return value if isinstance(value, int) else varint(value, 0)[0] if value else 0


def plugin_data(metadata: bytes) -> dict[int, int | bytes]:
    """The plugin name (field 1) and content (field 2) of a `SummaryMetadata`."""
    for number, value in fields(metadata):
        if number == 1 and isinstance(value, bytes):
            return dict(fields(value))
    return {}


def hyperparameters(metadata: bytes) -> dict[str, Any]:
    """The hyperparameters by name in the `SummaryMetadata` of the HParams plugin.

    Its content is an `HParamsPluginData`, whose session_start_info (field 3) maps names to values (field 1).
    """
    content = plugin_data(metadata).get(2, b"")
    found: dict[str, Any] = {}
    for number, info in fields(content if isinstance(content, bytes) else b""):
        if number != 3 or not isinstance(info, bytes):
            continue
        for entry_number, entry in fields(info):
            if entry_number == 1 and isinstance(entry, bytes):
                pair = dict(fields(entry))
                name, value = pair.get(1, b""), pair.get(2, b"")
                if isinstance(name, bytes) and isinstance(value, bytes):
                    found[name.decode(errors="replace")] = _json_value(value)
    return found


def _json_value(value: bytes) -> Any:
    """A `google.protobuf.Value` that is a number (field 2), a string (3) or a bool (4); None for any other."""
    for number, content in fields(value):
        if number == 2 and isinstance(content, bytes):
            (found,) = _DOUBLE.unpack(content)
            return int(found) if found.is_integer() and abs(found) < 1 << 53 else found
        if number == 3 and isinstance(content, bytes):
            return content.decode(errors="replace")
        if number == 4:
            return bool(content)
    return None
