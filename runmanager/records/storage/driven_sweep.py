"""The sweep of which a driver runs this process's cell: nothing makes its folder again while its runs run."""

import os
from pathlib import Path

from runmanager.errors import RecordError
from runmanager.records.files.paths import SweepPaths

DRIVEN_VARIABLE = "RUNMANAGER_DRIVEN"
"""Environment variable with the folder of a sweep whose driver writes sweep.json and the tables itself: its runs write
neither."""


def require_driven_sweep(run: Path) -> None:
    """Raise `RecordError` if `run` is a folder of the driven sweep, and that was deleted or moved since its start."""
    driven = os.environ.get(DRIVEN_VARIABLE)
    if driven is None:
        return
    runs = SweepPaths(Path(driven)).runs
    if Path(os.path.abspath(run.parent)) == runs and not runs.exists():  # noqa: PTH100  # keeps links
        raise RecordError(f"The folder {driven} must exist while its runs run, got it deleted or moved.")
