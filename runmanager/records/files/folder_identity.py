"""Detection of a folder that was deleted, moved or replaced."""

import errno
import os
import weakref
from pathlib import Path

__all__ = ["FolderIdentity"]


class FolderIdentity:
    """A folder as it is now, held open so that no other folder can get its inode."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loss = ""
        self._handle = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._handle)

    @property
    def loss(self) -> str:
        """How the folder was lost, as first seen, in words; empty while it exists or cannot be checked."""
        self._loss = self._loss or self._find_loss()
        return self._loss

    def _find_loss(self) -> str:
        try:
            now, then = os.stat(self._path), os.fstat(self._handle)  # noqa: PTH116  # five times a second
        except OSError as error:
            is_gone = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
            return "it deleted or moved" if is_gone else ""
        return "" if os.path.samestat(now, then) else "another in its place"
