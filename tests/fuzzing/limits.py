"""Run a reader on one input within limits; whatever but an answer or a refusal comes of it is a finding.

A reader never crashes, never hangs, and uses no memory in proportion to a number in its input.
"""

import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from runmanager.errors import RunManagerError

__all__ = ["Finding", "finding_of", "limited_memory"]

_SECONDS = 20.0  # of processor time: readers take milliseconds, drawing a report seconds
_BYTES = 1 << 30  # of memory beyond what is in use
_PACKAGE = f"{os.sep}runmanager{os.sep}"


class _SlowError(BaseException):
    """Raised in a reader that takes too long; not an `Exception`, which a reader may catch."""


@dataclass(frozen=True)
class Finding:
    """A promise that an input broke: `crash`, `hang` or `memory`, where, and the last line of the traceback."""

    kind: str
    place: str
    line: str


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let this process take a gigabyte more of address space, and not more; modules must be imported before."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def finding_of(read: Callable[[bytes], object], data: bytes) -> Finding | None:
    """Read an input and return what that breaks; None for an answer, and for an error made for users."""
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, _SECONDS)
    try:
        read(data)
    except _SlowError as error:
        return _finding("hang", error)
    except RunManagerError as error:
        return _finding("memory", error) if _is_of_memory(error) else None
    except Exception as error:
        return _finding("memory" if _is_of_memory(error) else "crash", error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return None


def _stop(number: int, frame: FrameType | None) -> None:
    raise _SlowError


def _is_of_memory(error: BaseException | None) -> bool:
    """Whether an error was caused by one of memory, which a reader may have caught."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _finding(kind: str, error: BaseException) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if _PACKAGE in frame.filename] or frames
    place = f"{ours[-1].filename.rpartition(_PACKAGE)[2]}:{ours[-1].lineno}"
    line = traceback.format_exception_only(error)[-1].strip()[:300]
    return Finding(kind, place, line)
