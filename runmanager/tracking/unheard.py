"""Keeping the death of a loader's worker from breaking off what must be brought to its end."""

import contextlib
import signal
import threading
from collections.abc import Iterator

__all__ = ["children_unheard"]


@contextlib.contextmanager
def children_unheard() -> Iterator[None]:
    """Let no handler of SIGCHLD run meanwhile: torch's raises wherever the program stands when a worker has died."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):
        yield
        return
    earlier = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        if earlier is not None:  # one that was not installed by Python cannot be put back by it
            signal.signal(signal.SIGCHLD, earlier)
