"""Links in place of folders of runs, which are not followed."""

from runmanager.errors import RecordError
from runmanager.records.files.paths import RunPaths, SweepPaths

__all__ = ["refuse_linked_run", "refuse_linked_runs"]


def refuse_linked_run(paths: RunPaths) -> None:
    """Raise `RecordError` if the run's folder is a link: it may lead into another sweep, whose run would be changed."""
    if paths.root.is_symlink():
        raise RecordError(f"{paths.root} must be a folder, got a link, which is not followed; move it away.")


def refuse_linked_runs(paths: SweepPaths) -> None:
    """Raise `RecordError` if the sweep's `runs` is a link, through which its runs would be written elsewhere."""
    if paths.runs.is_symlink():
        raise RecordError(f"{paths.runs} must be a folder, got a link; move what it leads to in its place.")
