"""A rest for the garbage collector while very many records are made, or looked at."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["gc_paused"]


@contextmanager
def gc_paused() -> Iterator[None]:
    """No search for garbage meanwhile. For work that leaves none: the search would take as long as the work.

    It serves as a decorator too.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
