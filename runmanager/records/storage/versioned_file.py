"""JSON files with a schema version, and reading thousands of them in less time and memory.

Older versions are read, newer ones are rejected. Records share equal parts, and the garbage collection is paused.
"""

import gc
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import read_bytes
from runmanager.records.files.file_errors import UNDECODABLE, UNREADABLE, Int64, damaged_file_error
from runmanager.records.run.run_record import SCHEMA_VERSION, RunRecord


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


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection, for work that creates many objects and no cycles; also usable as a decorator.

    Collecting would take as long as the work itself.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class PartialRecord(RunRecord, frozen=True, kw_only=True, gc=False):
    """A run's record whose configuration is not decoded yet."""

    config: dict[str, msgspec.Raw]


_TEXTS = ("host", "cpu_model", "device_name", "python", "commit")

PARTIAL_DECODER = msgspec.json.Decoder(PartialRecord)


class SharedParts:
    """Parts that are equal in many records, decoded once: groups of the configuration, libraries, the command.

    Ten thousand runs then take little more memory than their differences, and less time to decode. The shared parts
    must not be modified.
    """

    def __init__(self) -> None:
        self._parts: dict[bytes, Any] = {}
        self._facts: dict[Hashable, Any] = {}

    def complete(self, record: PartialRecord) -> RunRecord:
        """Decode the configuration of a record. Raises what `UNDECODABLE` lists."""
        config = {name: self._decode(bytes(part)) for name, part in record.config.items()}
        environment, known = record.environment, self._facts
        code = environment.code
        code = None if code is None else known.setdefault(("code", *code.items()), code)
        environment = msgspec.structs.replace(
            environment,
            libraries=known.setdefault(("libraries", *environment.libraries.items()), environment.libraries),
            command=known.setdefault(("command", *environment.command), environment.command),
            code=code,
            **{
                name: known.setdefault(text, text)
                for name in _TEXTS
                if (text := getattr(environment, name)) is not None
            },
        )
        return RunRecord(**{**msgspec.structs.asdict(record), "config": config, "environment": environment})

    def _decode(self, text: bytes) -> Any:
        if text not in self._parts:
            self._parts[text] = msgspec.json.decode(text)
        return self._parts[text]
