"""Messages between the ranks of a run, in the key-value store that the process group was built with.

A message needs no collective, so it can disturb none of the program's, and a rank that is gone can be told from a slow
one: each rank leaves its process's identity.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from runmanager.errors import RankError
from runmanager.records.host.process import ProcessIdentity
from runmanager.text import first_line
from runmanager.tracking.ranks.rank_messages import Beginning

__all__ = ["RankStore"]

_Message = TypeVar("_Message", bound=msgspec.Struct)

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02  # seconds between two looks at the store
_LIFE_SECONDS = 0.1  # between two looks at another rank's process


class RankStore:
    """The messages of one run, of rank `rank`, in the process group's `store` below `prefix`.

    A rank waits at most `timeout` seconds for another one. Every method raises `RankError` if the store is gone.
    """

    def __init__(self, store: Any, prefix: str, *, rank: int, timeout: float) -> None:
        self._store = store
        self._prefix = prefix
        self._timeout = timeout
        self._processes: dict[int, ProcessIdentity] = {}
        self.rank = rank

    def begin(self, beginning: Beginning) -> None:
        """Tell the other ranks that this one has started the run."""
        self.post(_beginning_of(self.rank), beginning)

    def beginning(self, rank: int) -> Beginning | None:
        """Return the beginning of a rank; None if it has not started the run yet."""
        found = self.find(_beginning_of(rank), Beginning)
        if found is not None:
            self._processes[rank] = found.process
        return found

    def post(self, key: str, message: msgspec.Struct) -> None:
        """Leave a message for other ranks."""
        encoded = msgspec.msgpack.encode(message).hex()  # some stores take text alone
        self._call(lambda: self._store.set(self._prefix + key, encoded))

    def find(self, key: str, kind: type[_Message]) -> _Message | None:
        """Return a message; None while there is none."""
        name = self._prefix + key
        if not self._call(lambda: self._store.check([name])):
            return None
        return msgspec.msgpack.decode(bytes.fromhex(self._call(lambda: self._store.get(name)).decode()), type=kind)

    def remove(self, key: str) -> None:
        """Remove a message that all ranks have read."""
        self._call(lambda: self._store.delete_key(self._prefix + key))

    def wait(self, key: str, kind: type[_Message], *, sender: int, what: str) -> _Message:
        """Wait for a message of another rank. Raises `RankError` if its process is gone, or after the timeout."""
        begun_at = looked_at = time.monotonic()
        pause = _SHORTEST_PAUSE
        while (found := self.find(key, kind)) is None:
            now = time.monotonic()
            if now - looked_at >= _LIFE_SECONDS:
                looked_at = now
                if self.is_gone(sender) and (found := self.find(key, kind)) is None:  # it may have been its last act
                    raise RankError(f"{self.named(sender)} ended before {what}", rank=sender)
                if found is not None:
                    return found
            if now - begun_at >= self._timeout:
                raise RankError(f"{self.named(sender)} was not seen for {self._timeout:g} s before {what}", rank=sender)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return found

    def is_gone(self, rank: int) -> bool:
        """Whether the process of a rank of this host has ended; False where that cannot be seen."""
        known = self._processes.get(rank)
        if known is None:
            beginning = self.beginning(rank)
            known = None if beginning is None else beginning.process
        return known is not None and known.is_alive() is False

    def named(self, rank: int) -> str:
        """Return a rank's name for messages."""
        known = self._processes.get(rank)
        return f"rank {rank}" + (f" (process {known.pid})" if known is not None else "")

    def _call(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except RuntimeError as error:  # that of torch's stores
            message = f"the store of the process group cannot be reached ({first_line(str(error))})"
            raise RankError(message, rank=0) from error


def _beginning_of(rank: int) -> str:
    return f"begin/{rank}"
