"""Counting of Ctrl-C and SIGTERM, for loops that handle them between two steps."""

import signal
from contextlib import AbstractContextManager

from runmanager.signals import handle_signals

__all__ = ["InterruptCounter"]


class InterruptCounter:
    """Number of times that the user asked to stop, and how many of these have been handled.

    The first lets the running epochs end, the second ends everything immediately.
    """

    def __init__(self) -> None:
        self.count = 0
        self.num_handled = 0

    def __bool__(self) -> bool:
        return self.count > 0

    @property
    def is_immediate(self) -> bool:
        """Whether everything is to end immediately."""
        return self.num_handled > 1

    def take(self) -> bool:
        """Return whether there are interrupts that were not handled yet, and mark all as handled."""
        before, self.num_handled = self.num_handled, self.count
        return self.num_handled > before

    def counting(self) -> AbstractContextManager[None]:
        """Count interrupts within a `with` block."""
        return handle_signals((signal.SIGINT, signal.SIGTERM), self._increment)

    def _increment(self) -> None:
        self.count += 1
