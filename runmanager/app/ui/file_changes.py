"""Whether the files of a sweep have changed, told from their stamps without reading them."""

import os
from collections.abc import Hashable, Iterator, Mapping

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import FileStamp, file_stamp
from runmanager.records.files.folders import folder_entries
from runmanager.records.files.paths import EPOCHS, RECORD, SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import read_record, run_names
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.load.summary_cache import CachedRun, stamps_of

__all__ = ["FileChanges", "link_leading_out"]

_RunState = tuple[FileStamp | None, ...]

_READ = frozenset((RECORD, EPOCHS, "reported.json", "turns.jsonl", "heartbeat", "config.yaml", "run.log", "error.txt"))
"""The files of a run folder that readers open by their names."""


class FileChanges:
    """Looks at the files of one sweep again and again.

    Runs that have ended for good rest: only a thorough look finds that one of them was begun again, or edited.
    """

    def __init__(self, paths: SweepPaths) -> None:
        self._paths = paths
        self._names: list[str] = []
        self._folder: FileStamp | None = None
        self._records: dict[str, tuple[_RunState, RunRecord | None]] = {}
        self._num_disturbed = 0

    def look(self, settled: Mapping[str, CachedRun], plan: SweepRecord | None, *, thorough: bool) -> Hashable:
        """Return a value that is another one if a file, or the life of a process at work, has changed.

        `settled` are the runs at rest as they were read, `plan` the sweep's record. Raises `OSError`.
        """
        folder = file_stamp(self._paths.runs)
        if thorough or folder != self._folder:
            self._names, self._folder = run_names(self._paths), folder
            self._records = {name: self._records[name] for name in self._names if name in self._records}
        if thorough and any(stamps_of(f"{self._paths.runs}/{name}") != run.stamps for name, run in settled.items()):
            self._num_disturbed += 1
        going = tuple(self._going(name) for name in self._names if name not in settled)
        drivers = tuple(driver.is_alive() for driver in (plan.drivers if plan else ()))
        files = file_stamp(self._paths.record), file_stamp(self._paths.labels), folder
        return files, self._num_disturbed, going, drivers

    def _going(self, name: str) -> Hashable:
        """The state of a run that may still change: its files, and whether its process is alive."""
        folder = f"{self._paths.runs}/{name}"
        try:
            state = tuple(file_stamp(f"{folder}/{file}") for file in (RECORD, EPOCHS, "reported.json", "turns.jsonl"))
        except OSError as error:
            return name, error.errno
        if self._records.get(name, (None, None))[0] != state:
            self._records[name] = state, self._record(name)
        record = self._records[name][1]
        return name, state, None if record is None else record.observed().status

    def _record(self, name: str) -> RunRecord | None:
        try:
            return read_record(self._paths.run(name))
        except (RecordError, OSError):
            return None


def link_leading_out(paths: SweepPaths, root: str, settled: Mapping[str, CachedRun]) -> str | None:
    """Return the first link among the files that readers open which leads out of the folder `root`, a real path.

    The `settled` runs were looked at before.
    """
    links = (entry.path for entry in _opened(paths, settled) if entry.is_symlink())
    return next((link for link in links if not _is_below(os.path.realpath(link), root)), None)


def _opened(paths: SweepPaths, settled: Mapping[str, CachedRun]) -> Iterator["os.DirEntry[str]"]:
    names = (paths.record.name, paths.labels.name, paths.runs.name)
    yield from (entry for entry in folder_entries(str(paths.root)) if entry.name in names)
    for run in folder_entries(str(paths.runs)):
        if run.name not in settled:
            yield run
            yield from (entry for entry in folder_entries(run.path) if entry.name in _READ)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
