"""Signs of progress of a program whose steps cannot be seen: output, and files written to its run folder."""

import os
from pathlib import Path

__all__ = ["FolderActivity"]

_OWN_FILES = frozenset({"heartbeat", "run.json"})


class FolderActivity:
    """Watches the files directly in a run folder: their sizes, and when they were written."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._last = self._state()

    def has_changed(self) -> bool:
        """Whether a file has been written since the last call."""
        earlier, self._last = self._last, self._state()
        return self._last != earlier

    def _state(self) -> frozenset[tuple[str, int, int]]:
        try:
            with os.scandir(self._root) as entries:
                files = [(each.name, each.stat()) for each in entries if each.name not in _OWN_FILES]
        except OSError:  # a file may vanish meanwhile
            return frozenset()
        return frozenset((name, stat.st_size, stat.st_mtime_ns) for name, stat in files)
