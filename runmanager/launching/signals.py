"""What signals do for a while, in a driver and in a run's own process."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

__all__ = ["signals_call"]


@contextmanager
def signals_call(numbers: Sequence[int], act: Callable[[], None]) -> Iterator[None]:
    """Let each of these signals call `act`. In another thread than the main one they are not ours: nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.signal(number, lambda number, frame: act()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
