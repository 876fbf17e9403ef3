"""JSON files with a schema version: older ones are read, newer ones are rejected."""

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import read_bytes
from runmanager.records.files.file_errors import UNDECODABLE, UNREADABLE, Int64, damaged_file_error
from runmanager.records.run.run_record import SCHEMA_VERSION


def encode_record(record: msgspec.Struct) -> bytes:
    """Encode a record for its file, indented for people."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


class _Versioned(msgspec.Struct):
    schema_version: Int64 = SCHEMA_VERSION


class _HasVersion(Protocol):
    @property
    def schema_version(self) -> int: ...


_T = TypeVar("_T", bound=_HasVersion)


def decode_file(path: str | Path, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Decode a versioned JSON file; unknown fields are ignored. Raises `RecordError`, also for a newer version."""
    try:
        data = read_bytes(path)
        try:
            decoded = decoder.decode(data)
            version = decoded.schema_version
        except UNDECODABLE:
            version = _VERSION_DECODER.decode(data).schema_version  # fields of a newer file may have other types
            if version <= SCHEMA_VERSION:
                raise
        if version > SCHEMA_VERSION:
            raise RecordError(
                f"{path} must have a schema_version of at most {SCHEMA_VERSION}, got {version}; "
                "it was written by a newer runmanager: upgrade this one."
            )
        return decoded
    except FileNotFoundError:
        raise RecordError(f"{path} must be a file, got nothing there.") from None
    except UNREADABLE as error:
        raise damaged_file_error(path, error) from error


_VERSION_DECODER = msgspec.json.Decoder(_Versioned)
