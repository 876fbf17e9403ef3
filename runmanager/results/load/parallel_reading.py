"""Work on many runs in several processes: nearly all of its time is Python's own, which threads cannot share."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from runmanager.records.host.process import usable_cores

__all__ = ["in_parts"]

_MIN_RUNS = 500  # of a part; starting a process costs as much as reading some tens of runs
_MAX_PROCESSES = 4
_CHUNK = 1 << 20

_T = TypeVar("_T")


def in_parts(
    names: Sequence[str], work: Callable[[Sequence[str]], _T], decoder: msgspec.msgpack.Decoder[_T]
) -> list[_T]:
    """Return the results of `work` for consecutive parts of `names`, in order; each part has a process of its own.

    A result crosses processes in msgpack, and `decoder` reads it. There is one part, and no further process, if there
    are few names or one core, and where this process has threads, whose locks a forked one would keep for ever. Parts
    for which the system has no process left are done here.
    """
    num_parts = min(len(names) // _MIN_RUNS, _MAX_PROCESSES, usable_cores()) if _may_fork() else 1
    size = -(-len(names) // max(1, num_parts))
    parts = [names[begin : begin + size] for begin in range(0, len(names), max(1, size))] or [names]
    with contextlib.ExitStack() as stack:
        others: list[_Worker[_T]] = []
        with contextlib.suppress(OSError):
            for part in parts[1:]:
                others.append(stack.enter_context(_Worker(work, part, decoder)))
        done = [work(parts[0]), *(each.result() for each in others)]
        return [*done, *map(work, parts[len(done) :])]


def _may_fork() -> bool:
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    return len(os.listdir("/proc/self/task")) == 1  # libraries have threads that Python does not know


class _Worker(Generic[_T]):
    """A forked process that does the work of one part; if it fails, the part is done again here."""

    def __init__(self, work: Callable[[Sequence[str]], _T], part: Sequence[str], decoder: msgspec.msgpack.Decoder[_T]):
        self._work, self._part, self._decoder = work, part, decoder
        self._pipe, into = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            os.close(self._pipe)
            os.close(into)
            raise
        if self._pid == 0:
            self._answer(into)
        os.close(into)

    def __enter__(self) -> "_Worker[_T]":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _answer(self, into: int) -> None:
        """Do the work in the forked process, and end it without anything that belongs to its parent."""
        try:
            with os.fdopen(into, "wb") as pipe:
                pipe.write(msgspec.msgpack.encode(self._work(self._part)))
        finally:
            os._exit(0)

    def result(self) -> _T:
        received = bytearray()
        while data := os.read(self._pipe, _CHUNK):
            received += data
        try:
            return self._decoder.decode(received)
        except msgspec.DecodeError:  # nothing, or not all of it
            return self._work(self._part)
