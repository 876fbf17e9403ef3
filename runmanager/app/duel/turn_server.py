"""The process that grants the turns of both sides of a duel, each of which is a driver of its own.

```
begin        each side says that it is about to run a cell; the session begins when both have said so
job          each side's job connects, and asks for its turns
has_next     a side asks whether its processes are to be started again
ended        each side says that its job has ended; both learn whether a further session follows
```
"""

import contextlib
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from runmanager.app.driver.paired_stopping import PairedSessions
from runmanager.launching.local.turn_keeper import TurnKeeper
from runmanager.training.options.groups import PairedOptions

__all__ = ["TurnServer"]

_TICK_SECONDS = 0.2
_SIDES = (frozenset({"baseline"}), frozenset({"candidate"}))
_KEYS = (frozenset({0}), frozenset({1}))


@dataclass
class _Driver:
    """A side's driver: its connection, and what it waits for."""

    pipe: Connection
    begin: dict[str, Any] | None = None
    ended: dict[str, Any] | None = None


@dataclass
class _Group:
    """The sessions of the pair of cells that takes turns now."""

    sessions: PairedSessions | None
    keeper: TurnKeeper
    joined: set[int] = field(default_factory=set)


class TurnServer:
    """Listens on a socket at `path`, and grants turns until both processes have ended.

    `check` gets the side and the files that its job has imported when it first asks for a measured turn, and returns an
    error, or nothing; after an error no turn is granted any more.
    """

    def __init__(self, path: Path, check: Callable[[int, Sequence[str]], str | None]) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._check = check
        self._drivers: dict[int, _Driver] = {}
        self._new: list[Connection] = []
        self._group: _Group | None = None
        self.error: str | None = None

    def close(self) -> None:
        self._listener.close()
        for driver in self._drivers.values():
            driver.pipe.close()

    def serve(self, sides: Sequence["subprocess.Popen[bytes]"]) -> None:
        """Grant turns until both sides have ended, or one has to wait for a side that will not come."""
        while any(side.poll() is None for side in sides) and self.error is None:
            self._receive(connection.wait([self._listener, *self._pipes()], timeout=_TICK_SECONDS))
            gone = {index for index, side in enumerate(sides) if side.poll() is not None}
            for index, driver in self._drivers.items():
                if driver.begin is not None and 1 - index in gone:
                    driver.begin = None
                    _send(driver.pipe, {"refused": "The other side of the duel has ended; its message says why."})
                if driver.ended is not None and 1 - index in gone:
                    driver.ended = None
                    _send(driver.pipe, {"again": False})

    def _pipes(self) -> list[Connection]:
        drivers = [driver.pipe for driver in self._drivers.values() if not driver.pipe.closed]
        group = self._group
        # Until both have joined, one that is alone would be told that its turns are over.
        jobs = [] if group is None or len(group.joined) < 2 else group.keeper.pipes
        return [*self._new, *drivers, *jobs]

    def _receive(self, ready: Sequence[object]) -> None:
        if self._listener in ready:
            accepted, _ = self._listener.accept()
            self._new.append(Connection(accepted.detach()))
        for pipe in [each for each in self._new if each in ready]:
            self._new.remove(pipe)
            with contextlib.suppress(EOFError, OSError):
                self._introduce(pipe, pipe.recv())
        for side, driver in self._drivers.items():
            if driver.pipe in ready:
                try:
                    self._answer(side, driver, driver.pipe.recv())
                except (EOFError, OSError):
                    driver.pipe.close()
        if self._group is not None and len(self._group.joined) == 2:
            keeper = self._group.keeper
            keeper.receive(ready)
            for side in list(keeper.imported):
                self.error = self.error or self._check(side, keeper.imported.pop(side))

    def _introduce(self, pipe: Connection, message: dict[str, Any]) -> None:
        side = message["side"]
        if message["kind"] == "driver":
            self._drivers[side] = _Driver(pipe)
        elif self._group is not None:
            self._group.keeper.join(side, pipe)
            self._group.joined.add(side)
            self._group.keeper.started()

    def _answer(self, side: int, driver: _Driver, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "begin":
                driver.begin = message
                self._begin_together()
            case "has_next":
                sessions = self._group.sessions if self._group is not None else None
                _send(driver.pipe, {"has_next": sessions is not None and sessions.has_next})
            case "ended":
                driver.ended = message
                if self._group is not None and side not in self._group.joined:
                    # Its job never came: what the other one waits for will not happen.
                    self._group.joined |= {0, 1}
                self._end_together()

    def _begin_together(self) -> None:
        drivers = [self._drivers.get(side) for side in range(2)]
        begins = [driver.begin for driver in drivers if driver is not None and driver.begin is not None]
        if len(begins) < 2:
            return
        group = self._group = self._new_group(begins)
        for driver in self._drivers.values():
            driver.begin = None
            _send(driver.pipe, {"session": group.keeper.session})

    def _new_group(self, begins: Sequence[dict[str, Any]]) -> _Group:
        seed = int(begins[0]["signature"][:8], 16)
        checkpoints = [Path(path) for begin in begins for path in begin["checkpoints"]]
        measures = [begin["measure"] for begin in begins]
        if None in measures:
            whole_runs = TurnKeeper(enough=lambda rounds: True, min_rounds=1, max_seconds=float("inf"), seed=seed)
            return _Group(None, whole_runs)
        is_further = any(begin["again"] for begin in begins) and self._group is not None
        sessions = self._group.sessions if is_further and self._group is not None else None
        sessions = sessions or PairedSessions(PairedOptions(**measures[0]), _SIDES)
        keeper = sessions.begin(
            _KEYS, seed=seed, can_restart=lambda: all(checkpoint.exists() for checkpoint in checkpoints)
        )
        return _Group(sessions, keeper)

    def _end_together(self) -> None:
        ends = [driver.ended for driver in self._drivers.values() if driver.ended is not None]
        if len(ends) < 2:
            return
        sessions = self._group.sessions if self._group is not None else None
        again = sessions is not None and sessions.has_next and all(end["can_repeat"] for end in ends)
        for driver in self._drivers.values():
            driver.ended = None
            _send(driver.pipe, {"again": again})


def _send(pipe: Connection, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # it is gone, and its process will be seen to be
        pipe.send(message)
