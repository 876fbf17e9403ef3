"""What SIGTERM does meanwhile, in the driver and in a run's own process."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["sigterm_calls"]


@contextmanager
def sigterm_calls(stop: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM call `stop` in the main thread. In another thread signals are not ours to handle: nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = signal.signal(signal.SIGTERM, lambda number, frame: stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)
