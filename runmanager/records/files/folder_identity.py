"""Whether a folder is still the one that it was: deleted, moved and replaced ones are seen."""

import errno
import os
import weakref
from pathlib import Path

__all__ = ["FolderIdentity"]


class FolderIdentity:
    """A folder as it stands now; held open, so that no other folder is given its inode."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fate = ""
        self._handle = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._handle)

    @property
    def loss(self) -> str:
        """What became of it, as it was first seen, in words; empty while it is there, or nobody can see."""
        self._fate = self._fate or self._look()
        return self._fate

    def _look(self) -> str:
        try:
            now, then = os.stat(self._path), os.fstat(self._handle)  # noqa: PTH116  # five times a second
        except OSError as error:
            is_gone = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
            return "it deleted or moved" if is_gone else ""
        return "" if os.path.samestat(now, then) else "another in its place"
