"""What the table needs of runs that have ended, kept in one file a sweep: they are not read again while they stay.

A summary is taken from the file only while the run's own files are what they were: changed at the same times, as long,
and the same inodes. The file decides nothing else. One that is damaged (it has a checksum), foreign, or of another
version of this program counts as none, and where none can be written every run is read each time.
"""

import contextlib
import hashlib
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from runmanager import __version__
from runmanager.records.files.atomic_files import FileStamp, file_stamp, read_bytes, replace_file
from runmanager.records.files.damaged_files import UNREADABLE
from runmanager.records.files.paths import EPOCHS, RECORD, SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.run_summary import RunSummary

__all__ = ["CachedRun", "RunStamps", "is_settled", "read_cache", "stamps_of", "write_cache"]

RunStamps = tuple[FileStamp | None, FileStamp | None]
"""The marks of a run's record and of its epochs."""

_CHECKSUM = 4  # bytes before the rest: what a disk spoiled may still be read, and would be other numbers
_SETTLED_NS = 2 * 10**9  # a file that is younger may change again without another time
_FEW = 100  # runs that are read as soon as the file would be
_SHARE = 50  # one run in so many, at least, must be new for the file to be worth writing


class CachedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A summary, and the marks that its run's files had before they were read."""

    marks: RunStamps
    summary: RunSummary


class _File(msgspec.Struct, frozen=True, array_like=True):
    made_by: str
    runs: list[CachedRun]


_DECODER = msgspec.msgpack.Decoder(_File)


def stamps_of(folder: str) -> RunStamps:
    """The marks of a run's files as they are now. Raises `OSError`."""
    return file_stamp(f"{folder}/{RECORD}"), file_stamp(f"{folder}/{EPOCHS}")


def is_settled(run: StoredRun, marks: RunStamps, *, now_ns: int) -> bool:
    """Whether a run has ended for good, by its own word or its driver's, and its files lay still for a while.

    Crashed is also what a run looks like whose process is gone without a word, and the table of one that took turns
    needs a third file: those are read each time.
    """
    if not run.record.status.is_ended or run.record.status is Status.CRASHED or run.record.session is not None:
        return False
    newest = max((time for mark in marks if mark is not None for time in mark[:2]), default=now_ns)
    return newest <= now_ns - _SETTLED_NS


def read_cache(paths: SweepPaths) -> dict[str, CachedRun]:
    """What is kept of a sweep's runs, by the name of their folder; nothing where there is no file that serves."""
    try:
        content = memoryview(read_bytes(paths.summaries))
        if _checksum(content[_CHECKSUM:]) != content[:_CHECKSUM]:
            return {}
        kept = _DECODER.decode(content[_CHECKSUM:])
    except UNREADABLE:
        return {}
    return {run.summary.folder: run for run in kept.runs} if kept.made_by == _made_by() else {}


def write_cache(paths: SweepPaths, runs: Sequence[CachedRun], *, num_new: int) -> None:
    """Keep these for the next reading, if so many are new that it is worth it. Two writers at a time are safe."""
    if num_new >= max(_FEW, len(runs) / _SHARE):
        with contextlib.suppress(OSError):  # a full disk, or somebody who may only read here
            content = msgspec.msgpack.encode(_File(_made_by(), list(runs)))
            replace_file(paths.summaries, _checksum(content) + content)


def _checksum(content: bytes | memoryview) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM, "big")


@cache
def _made_by() -> str:
    """Which program makes the summaries: its version and, for one that is being worked on, its files."""
    rooms = (Path(__file__).parents[1], Path(__file__).parents[2] / "records")
    files = [file for room in rooms for file in room.rglob("*.py")]
    marks = sorted((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return hashlib.sha256(repr((__version__, marks)).encode()).hexdigest()
