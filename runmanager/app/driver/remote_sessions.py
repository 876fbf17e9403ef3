"""The sessions of one side of a duel whose other side is another process: another commit, or another environment.

Each side is a driver of its own, with its own server. The duel's command grants the turns of both. A side connects to
its socket, and so does each of its jobs.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from runmanager.app.driver.other_drivers import stored_record
from runmanager.errors import RunManagerError
from runmanager.launching.local.turn_keeper import TurnClient
from runmanager.launching.plan import Action, PlannedRun
from runmanager.records.run.status import Status
from runmanager.training.options.groups import PairedOptions

__all__ = ["DUEL_VARIABLE", "DuelAddress", "RemoteSessions", "duel_address"]

DUEL_VARIABLE = "RUNMANAGER_DUEL"
"""Environment variable of a side: which side it is (0: the baseline), the pid of the duel, and its socket."""


@dataclass(frozen=True)
class DuelAddress:
    """Where a side finds its duel."""

    side: int
    pid: int
    socket: str

    def __str__(self) -> str:
        return f"{self.side}:{self.pid}:{self.socket}"


def duel_address() -> DuelAddress | None:
    """Return the address of the duel that this process is a side of; None outside of one."""
    side, _, rest = os.environ.get(DUEL_VARIABLE, "").partition(":")
    pid, _, path = rest.partition(":")
    return DuelAddress(int(side), int(pid), path) if path else None


def _connect_to(path: str) -> Connection:
    """Connect to a socket. Raises `RunManagerError` where no process listens."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.connect(path)
    except OSError as error:
        client.close()
        raise RunManagerError("The duel that this command is a side of has ended.") from error
    return Connection(client.detach())


class RemoteSessions:
    """The sessions of a group on this side: as `PairedSessions`, but another process decides.

    Without `options` the program takes no measured turns: each whole run is one turn.
    """

    def __init__(self, address: DuelAddress, options: PairedOptions | None) -> None:
        self._address = address
        self._options = options
        self._pipe = _connect_to(address.socket)
        self._pipe.send({"kind": "driver", "side": address.side})
        self._batch: Sequence[PlannedRun] = ()
        self._session = ""

    def start(self, batch: Sequence[PlannedRun], first: int) -> "RemoteTurns":
        """Begin a session when the other side begins it too; return the keeper of its turns."""
        self._batch = batch
        options = self._options
        again = any(run.action is Action.MEASURE for run in batch)
        answer = self._ask(
            kind="begin",
            signature=batch[0].cell.signature,
            checkpoints=[str(run.paths.checkpoint.absolute()) for run in batch],
            again=again,
            measure=None
            if options is None
            else {name: getattr(options, name) for name in ("min_rounds", "max_seconds", "half_width")},
        )
        if "refused" in answer:
            raise RunManagerError(answer["refused"])
        self._session = answer["session"]
        return RemoteTurns(self._address, self._session, again=again)

    @property
    def has_next(self) -> bool:
        """Whether a further session follows this one."""
        return bool(self._ask(kind="has_next")["has_next"])

    def next_runs(self) -> list[PlannedRun]:
        """Return the runs to start again for a further session; empty without one."""
        records = [(run, stored_record(run)) for run in self._batch]
        again = [
            replace(run, action=Action.MEASURE, stored=record)
            for run, record in records
            if record is not None and record.status is Status.FINISHED and record.session == self._session
        ]
        answer = self._ask(kind="ended", can_repeat=bool(again))
        if not answer["again"]:
            self._pipe.close()
        return again if answer["again"] else []

    def _ask(self, **message: Any) -> dict[str, Any]:
        try:
            self._pipe.send(message)
            answer: dict[str, Any] = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise RunManagerError("The duel that this command is a side of has ended.") from error
        return answer


class RemoteTurns:
    """The keeper of turns for the local engine where another process grants them: each job asks that process itself."""

    def __init__(
        self, address: DuelAddress, session: str, *, again: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = address
        self._session = session
        self._again = again
        self._since = clock()

    @property
    def pipes(self) -> list[Connection]:
        return []

    def add(self, key: int) -> TurnClient:
        """Connect a job to the duel; its client is passed to its process."""
        pipe = _connect_to(self._address.socket)
        pipe.send({"kind": "job", "side": self._address.side})
        return TurnClient(pipe, self._session, again=self._again, family=self._address.pid, reports_imports=True)

    def started(self) -> None:
        """Nothing to note: the duel sees the job's connection."""

    def remove(self, key: int) -> None:
        """Nothing to remove: the end of the job closed its connection."""

    def clock(self, key: int) -> float:
        """Return the same time always: only the duel knows how long a job waits, so time limits are refused."""
        return self._since

    def receive(self, ready: Sequence[object]) -> None:
        """Nothing to receive: no job asks this process."""
