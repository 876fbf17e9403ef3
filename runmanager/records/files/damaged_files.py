"""What cannot be decoded: the one list of errors that mean a damaged file, and the error that names the file."""

from pathlib import Path

import msgspec

from runmanager.errors import RecordError

__all__ = ["UNDECODABLE", "UNREADABLE", "damaged"]

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for content that is not what it must be; text that is not UTF-8 has an error of its own."""

UNREADABLE = (OSError, *UNDECODABLE)
"""The same, and what the file itself raises."""


def damaged(path: str | Path, error: Exception, *, way_out: str = "") -> RecordError:
    """The error that names the file whose reading raised `error`."""
    why = str(error)
    if isinstance(error, UnicodeDecodeError):
        why = f"its text must be UTF-8, got the byte 0x{error.object[error.start]:02x}"
    return RecordError(f"{path} is damaged: {why}{way_out}")
