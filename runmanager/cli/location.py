"""Finding the sweep that a command names: a folder, or a bare name under outputs/."""

import difflib
from pathlib import Path

from runmanager.errors import UsageError
from runmanager.records.paths import SweepPaths
from runmanager.records.sweep import open_sweep

__all__ = ["OUTPUT_ROOT", "find_sweep"]

OUTPUT_ROOT = Path("outputs")
"""Where sweeps lie if nobody says otherwise."""


def find_sweep(name: str) -> SweepPaths:
    """The sweep in the folder `name`, else the one of that name under `outputs/`.

    Raises `UsageError`, with the nearest names there are, where neither is a sweep; `RecordError` where the sweep's
    own record is damaged.
    """
    folder = Path(name)
    is_bare = folder.name == name
    try:
        return open_sweep(folder)
    except UsageError as error:
        if not is_bare:
            raise
        if (OUTPUT_ROOT / name).is_dir():
            return open_sweep(OUTPUT_ROOT / name)
        near = _nearest(name)
        raise UsageError(f"{error} Did you mean {' or '.join(near)}?" if near else str(error)) from None


def _nearest(name: str) -> list[str]:
    if not OUTPUT_ROOT.is_dir():
        return []
    names = [folder.name for folder in OUTPUT_ROOT.iterdir() if folder.is_dir()]
    return difflib.get_close_matches(name, names, n=3)
