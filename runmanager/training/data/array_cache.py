"""A cache of arrays that can be built again: whole files only, checked when read, never in the way."""

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
_KEPT_FILES = 8  # of one kind; a digits file takes 55 MB
_log = logging.getLogger(__name__)


def cache_file(kind: str, key: Mapping[str, object]) -> Path | None:
    """Where arrays of this kind and key lie, None where the user has no home folder."""
    digest = hashlib.blake2b(repr(sorted(key.items())).encode(), digest_size=8).hexdigest()
    folder = cache_folder()
    return None if folder is None else folder / f"{kind}-{digest}.npz"


def load_or_build(path: Path | None, build: Callable[[], Arrays]) -> Arrays:
    """The arrays of the file, or of `build` where there is no whole one; then the file is written for the next time.

    A cache that cannot be written is done without, with a warning in the log. Two processes may build at once: each
    writes its own file and renames it into place.
    """
    arrays = _read(path) if path else None
    if arrays is None:
        arrays = build()
        if path:
            _write(path, arrays)
    return arrays


def _read(path: Path) -> Arrays | None:
    try:
        # A zip file: each array is checked against its CRC. Opened here, because NumPy leaves a broken one open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        _log.warning("The cache file %s cannot be read and is built again: %s", path, error)
        return None


def _write(path: Path, arrays: Arrays) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacement(path) as file:  # in memory it would take as much again
            np.savez(file, allow_pickle=False, **arrays)
        _prune(path)
    except OSError as error:
        _log.warning("The cache file %s cannot be written, so it is built again each time: %s", path, error)


def _prune(newest: Path) -> None:
    """Drop the oldest files of the same kind; one that is being read stays readable until it is closed."""
    kind = newest.name.rpartition("-")[0]
    with contextlib.suppress(FileNotFoundError):  # another process prunes at the same time
        files = sorted(newest.parent.glob(f"{kind}-*.npz"), key=lambda file: file.stat().st_mtime)
        for old in files[:-_KEPT_FILES]:
            old.unlink()
