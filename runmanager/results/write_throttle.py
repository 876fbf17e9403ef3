"""How often tables are written while runs run: each end asks for it, and of many runs it takes long."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["MAX_TABLES_SHARE", "WriteThrottle"]

MAX_TABLES_SHARE = 0.05
"""The share of the time that goes into tables while the runs of a large sweep run, however many there are."""


class WriteThrottle:
    """Says when something may be done again, so that it takes a `share` of the time at most.

    `clock` counts seconds.
    """

    def __init__(self, share: float = MAX_TABLES_SHARE, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._due_at = -float("inf")

    @property
    def is_due(self) -> bool:
        return self._clock() >= self._due_at

    @contextmanager
    def doing(self) -> Iterator[None]:
        """It is done meanwhile; what fails may be tried again at once."""
        began = self._clock()
        yield
        ended = self._clock()
        self._due_at = ended + (ended - began) / self._share
