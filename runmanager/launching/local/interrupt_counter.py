"""Counting how often the user asks to stop, where that is to be heeded between two steps and not at once."""

import signal
from contextlib import AbstractContextManager

from runmanager.signals import handle_signals

__all__ = ["InterruptCounter"]


class InterruptCounter:
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

    def counted(self) -> AbstractContextManager[None]:
        """Count them meanwhile."""
        return handle_signals((signal.SIGINT, signal.SIGTERM), self._hear)

    def _hear(self) -> None:
        self.count += 1
