"""Keeping back what one thread prints and warns of, while every other thread prints and warns as ever."""

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

__all__ = ["quiet_thread"]

_lock = threading.RLock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it, and is not in the fork


os.register_at_fork(after_in_child=_renew_lock)


@contextlib.contextmanager
def quiet_thread() -> Iterator[None]:
    """Meanwhile this thread prints nothing to `sys.stdout` and shows no warning.

    Threads take turns: what the body changes for the whole process and puts back, no two of them change at once.
    """
    with _lock, _quiet_output(), _quiet_warnings():
        yield


@contextlib.contextmanager
def _quiet_output() -> Iterator[None]:
    stream = sys.stdout
    ours = _QuietStream(stream)
    sys.stdout = ours
    try:
        yield
    finally:
        ours.thread = None  # whoever has taken it for the standard output meanwhile, and puts it back, loses nothing
        if sys.stdout is ours:
            sys.stdout = stream


class _QuietStream:
    """A stream without what its `thread` writes; with no such thread any more it is the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self.thread: int | None = threading.get_ident()
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def _quiet_warnings() -> Iterator[None]:
    """Ignore this thread's warnings by a filter that matches no other thread's, and none at all afterwards.

    `warnings.catch_warnings` would put back the filters that it found, over those of other threads.
    """
    thread: int | None = threading.get_ident()

    class OfThread(type):
        def __subclasscheck__(cls, _category: type) -> bool:
            return threading.get_ident() == thread

    class AnyWarning(Warning, metaclass=OfThread):
        pass

    filters: Any = warnings.filters
    ours = ("ignore", None, AnyWarning, None, 0)
    filters.insert(0, ours)
    try:
        yield
    finally:
        thread = None
        with contextlib.suppress(ValueError):
            filters.remove(ours)
