"""A cache of NumPy arrays in files: written atomically, checked when read, and rebuilt if missing or damaged."""

import contextlib
import hashlib
import logging
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from runmanager.records.files.atomic_files import replacement
from runmanager.records.files.paths import cache_folder

__all__ = ["Arrays", "cache_file", "load_or_build"]

Arrays = dict[str, np.ndarray]
_MAX_FILES = 8  # of each kind; a digits file takes 55 MB
_log = logging.getLogger(__name__)


def cache_file(kind: str, key: Mapping[str, object]) -> Path | None:
    """The cache file for arrays of this kind and key; None if the user has no home folder."""
    digest = hashlib.blake2b(repr(sorted(key.items())).encode(), digest_size=8).hexdigest()
    folder = cache_folder()
    return None if folder is None else folder / f"{kind}-{digest}.npz"


def load_or_build(path: Path | None, build: Callable[[], Arrays]) -> Arrays:
    """Read the arrays from the file; if it is missing or damaged, call `build` and write the file.

    If the file cannot be written, a warning is logged. Two processes may build at the same time: each writes its own
    file and renames it into place.
    """
    arrays = _read(path) if path else None
    if arrays is None:
        arrays = build()
        if path:
            _write(path, arrays)
    return arrays


def _read(path: Path) -> Arrays | None:
    try:
        # The zip format checks each array's CRC. Opened here, because NumPy does not close a damaged file.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        _log.warning("The cache file %s cannot be read and is rebuilt: %s", path, error)
        return None


def _write(path: Path, arrays: Arrays) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacement(path) as file:  # not built in memory, which would double the memory
            np.savez(file, allow_pickle=False, **arrays)
        _prune(path)
    except OSError as error:
        _log.warning("The cache file %s cannot be written, so it is rebuilt each time: %s", path, error)


def _prune(newest: Path) -> None:
    """Delete the oldest files of the same kind; an open file stays readable until it is closed."""
    kind = newest.name.rpartition("-")[0]
    with contextlib.suppress(FileNotFoundError):  # another process may prune at the same time
        files = sorted(newest.parent.glob(f"{kind}-*.npz"), key=lambda file: file.stat().st_mtime)
        for old in files[:-_MAX_FILES]:
            old.unlink()
