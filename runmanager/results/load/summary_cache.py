"""The cache of run summaries, one file a sweep: runs that have ended are not read again until their files change.

A cached summary is used only while the run's files are unchanged: the same modification times, sizes and inodes. A
cache file that is damaged (it has a checksum), foreign, or from another version of this program is ignored. Where it
cannot be written, every run is read each time. Runs that logged the same metrics share one list of names.
"""

import contextlib
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import msgspec

from runmanager import __version__
from runmanager.records.files.atomic_files import FileStamp, file_stamp, read_bytes, replace_file
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.files.paths import EPOCHS, RECORD, SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.run_summary import LoggedNames, LoggedNamesTable, RunSummary

RunStamps = tuple[FileStamp | None, FileStamp | None]
"""The stamps of a run's record and of its epochs; None where the file does not exist."""

_CHECKSUM_BYTES = 4  # before the content: corrupt content may still decode, to other numbers
_SETTLED_NS = 2 * 10**9  # a younger file may change again within the resolution of its time
_MIN_NEW = 100  # fewer runs are read as fast as the cache
_MIN_NEW_SHARE = 1 / 50  # of the runs must be new for the file to be worth writing


class CachedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A summary, and the stamps that its run's files had before they were read."""

    stamps: RunStamps
    summary: RunSummary


class _CacheFile(msgspec.Struct, frozen=True, array_like=True):
    program: str
    runs: list[CachedRun]
    logged_names: list[LoggedNames]


_DECODER = msgspec.msgpack.Decoder(_CacheFile)


def stamps_of(folder: str) -> RunStamps:
    """Return the stamps of a run's files; call it before reading them, so that later writes change the stamps."""
    try:
        return file_stamp(f"{folder}/{RECORD}"), file_stamp(f"{folder}/{EPOCHS}")
    except OSError:
        return None, None  # reported when the run is read


def is_settled(run: StoredRun, stamps: RunStamps, *, now_ns: int) -> bool:
    """Whether a run has ended for good, as recorded by itself or its driver, and its files are unchanged for a while.

    Crashed runs are read each time, as the status is inferred from a process that is gone, and so are runs that took
    turns, as their table needs a third file.
    """
    if not run.record.status.is_ended or run.record.status is Status.CRASHED or run.record.session is not None:
        return False
    newest = max((time for stamp in stamps if stamp is not None for time in stamp[:2]), default=now_ns)
    return newest <= now_ns - _SETTLED_NS


def read_cache(paths: SweepPaths) -> tuple[dict[str, CachedRun], LoggedNamesTable]:
    """Read the cached runs of a sweep, by the name of their folder, and the names of what they logged.

    Both are empty without a valid file. See `SummaryMemory` for readers that write nothing.
    """
    memory = _memory.get()
    return _read_file(paths) if memory is None else memory.recall(paths)


def _read_file(paths: SweepPaths) -> tuple[dict[str, CachedRun], LoggedNamesTable]:
    try:
        content = memoryview(read_bytes(paths.summaries))
        if _checksum(content[_CHECKSUM_BYTES:]) != content[:_CHECKSUM_BYTES]:
            return {}, LoggedNamesTable()
        cached = _DECODER.decode(content[_CHECKSUM_BYTES:])
    except (*UNREADABLE, MemoryError):  # a length in it may be any
        return {}, LoggedNamesTable()
    if cached.program != _program():
        return {}, LoggedNamesTable()
    return {run.summary.folder: run for run in cached.runs}, LoggedNamesTable(cached.logged_names)


def write_cache(
    paths: SweepPaths, runs: Sequence[CachedRun], logged: LoggedNamesTable, *, num_new: int, even_few: bool = False
) -> None:
    """Write the cache, if enough runs are new to be worth it. Concurrent writers are safe.

    `even_few`: the sweep is one of many that are read together, where every cache counts.
    """
    if (memory := _memory.get()) is not None:
        memory.keep(runs, logged)
    elif num_new >= max(1 if even_few else _MIN_NEW, len(runs) * _MIN_NEW_SHARE):
        with contextlib.suppress(OSError, OverflowError):  # a full disk, a read-only folder, a number beyond 64 bits
            content = msgspec.msgpack.encode(_CacheFile(_program(), list(runs), logged.names))
            replace_file(paths.summaries, _checksum(content) + content)


class SummaryMemory:
    """The cache of one sweep in memory, for a process that reads it again and again and writes no file.

    It begins with the stored cache. Within `in_use`, `read_cache` and `write_cache` of this thread work on it.
    """

    def __init__(self) -> None:
        self._known: tuple[dict[str, CachedRun], LoggedNamesTable] | None = None

    @property
    def settled(self) -> Mapping[str, CachedRun]:
        """The runs that had ended for good when they were read, by the names of their folders."""
        return {} if self._known is None else self._known[0]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Take the place of the sweep's file."""
        token = _memory.set(self)
        try:
            yield
        finally:
            _memory.reset(token)

    def recall(self, paths: SweepPaths) -> tuple[dict[str, CachedRun], LoggedNamesTable]:
        """Return what `keep` was given last, at first what the file has."""
        if self._known is None:
            self._known = _read_file(paths)
        return self._known

    def keep(self, runs: Sequence[CachedRun], logged: LoggedNamesTable) -> None:
        """Replace what is known."""
        self._known = {run.summary.folder: run for run in runs}, logged


_memory: ContextVar[SummaryMemory | None] = ContextVar("memory", default=None)


def _checksum(content: bytes | memoryview) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")


@cache
def _program() -> str:
    """Return a hash of the program that makes the summaries: its version and, for development, its files."""
    rooms = (Path(__file__).parents[1], Path(__file__).parents[2] / "records")
    files = [file for room in rooms for file in room.rglob("*.py")]
    stamps = sorted((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return hashlib.sha256(repr((__version__, stamps)).encode()).hexdigest()
