"""The folder that TensorBoard reads: what is in it appears, and goes, in one step."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ServedFolder"]


class ServedFolder:
    """Folders of event files below `root`, each of them a run of TensorBoard by its name.

    TensorBoard may read at any time, so nothing is written or deleted below `root`: files are moved in when they are
    complete, and folders are moved out before they are deleted.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """`folder` must be empty and is for this object alone; `root` is `name` in it, which TensorBoard shows."""
        self.root = folder / name
        self.root.mkdir()
        self._staging = folder / ".staging"
        self._removed = folder / ".removed"

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """Yield an empty folder to fill. At the end, its files are served under `name` in place of those before.

        A folder that is served stays, with the new files in it first: TensorBoard continues with a file that is added,
        but may take a folder that was gone for a moment for deleted.
        """
        if self._staging.exists():  # of a call that failed
            shutil.rmtree(self._staging)
        self._staging.mkdir()
        yield self._staging
        target = self.root / name
        if not target.exists():
            os.rename(self._staging, target)
            return
        new = _files_below(self._staging)
        old = [each for each in _files_below(target) if each not in new]
        for each in new:
            (target / each).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._staging / each, target / each)
        for each in old:
            (target / each).unlink()
        shutil.rmtree(self._staging)

    def remove(self, name: str) -> None:
        """Stop serving what is under `name`."""
        if self._removed.exists():  # of a call that failed
            shutil.rmtree(self._removed)
        os.rename(self.root / name, self._removed)
        shutil.rmtree(self._removed)


def _files_below(folder: Path) -> list[str]:
    return [os.path.relpath(f"{parent}/{name}", folder) for parent, _, names in os.walk(folder) for name in names]
