"""Counting how often the user asks to stop, where that is to be heeded between two steps and not at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Interrupts"]


class Interrupts:
    """How often Ctrl-C or SIGTERM has come, and how many of these were heeded.

    The first asks for an end after the running epochs, the second for one at once.
    """

    def __init__(self) -> None:
        self.count = 0
        self.heeded = 0

    def __bool__(self) -> bool:
        return self.count > 0

    @property
    def is_at_once(self) -> bool:
        """Whether everything was told to end at once."""
        return self.heeded > 1

    def heed(self) -> bool:
        """Whether the user has asked (again) since the last look; takes note of it."""
        before, self.heeded = self.heeded, self.count
        return self.heeded > before

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count both signals meanwhile; only a main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def count(number: int, frame: FrameType | None) -> None:
            self.count += 1

        earlier = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)
