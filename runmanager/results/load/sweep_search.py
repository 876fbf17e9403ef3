"""All sweeps below a folder."""

from pathlib import Path

from runmanager.records.files.folders import folders_below
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import run_names

__all__ = ["find_sweeps"]


def find_sweeps(root: Path, notes: list[str]) -> list[SweepPaths]:
    """Return the sweeps below a folder, or the folder itself if it is one, by name; hidden folders are not searched.

    `notes` gets a line for each folder that cannot be read.
    """
    found: list[SweepPaths] = []
    for folder, subfolders, files in folders_below(root, notes):
        paths = SweepPaths(folder)
        if paths.record.name in files or (paths.runs.name in subfolders and _has_records(paths)):
            found.append(paths)
            subfolders.clear()  # a sweep holds no other
    return found


def _has_records(paths: SweepPaths) -> bool:
    """Whether a `runs` folder is one of ours: other programs have such folders too."""
    return any(paths.run(name).record.exists() for name in run_names(paths))
