"""A limit on the share of time that goes into writing tables while runs are executed.

Its own module, as the driver imports it at start, long before it needs the writer.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_MAX_TABLES_SHARE = 0.05
"""The largest share of time for writing tables while the runs of a large sweep are executed."""


class WriteThrottle:
    """Delays the next write so that writing takes at most a `share` of the time; `clock` returns seconds."""

    def __init__(self, share: float = _MAX_TABLES_SHARE, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._due_at = -float("inf")

    @property
    def is_due(self) -> bool:
        """Whether the next write may begin."""
        return self._clock() >= self._due_at

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Measure a write; one that raises may be retried immediately."""
        began = self._clock()
        yield
        ended = self._clock()
        self._due_at = ended + (ended - began) / self._share
