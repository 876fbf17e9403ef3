"""A folder that cannot be written, told in one line with the way out."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runmanager.errors import UsageError

__all__ = ["require_writable"]


@contextmanager
def require_writable(what: str, folder: Path, *, way_out: str) -> Iterator[None]:
    """Raises `UsageError` where what is written below `folder` meanwhile cannot be: no place, no right, or no room."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EFBIG:  # no other folder would help
            raise UsageError(str(error)) from error
        cause = error.strerror or str(error)
        raise UsageError(f"{what} must be a folder that can be written, got '{folder}': {cause}; {way_out}.") from error
