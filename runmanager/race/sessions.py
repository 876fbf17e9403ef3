"""The sessions of a group of runs that take turns: new processes each, until their speedups are precise or time is up.

```
first session          train, warm up, rounds
each later session     start from the checkpoint, warm up, rounds
until                  every speedup is known within `measure.half_width`,
                       or no further session fits into `measure.max_seconds`
```

`PairedSessions` decides that where all processes are known: in the driver of a paired sweep, or in the command of a
duel whose sides are drivers of their own. Such a side asks there (`RemoteSessions`), and so do its jobs.
"""

import math
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from multiprocessing.connection import Client, Connection
from typing import Any, NamedTuple

from runmanager.errors import RunManagerError
from runmanager.launching.local.turns import TurnClient, Turns
from runmanager.launching.plan import Action, PlannedRun, stored_record
from runmanager.race.keeper import Round, RoundRules, TurnKeeper
from runmanager.records.run.status import Status
from runmanager.results.stats.paired_speedup import MAX_SESSIONS, MIN_ROUNDS, is_narrow, log_ratios
from runmanager.training.options.groups import PairedOptions

Sides = tuple[frozenset[str], ...]
"""The signatures of each side of a group, the baseline's first."""

DUEL_VARIABLE = "RUNMANAGER_DUEL"
"""Environment variable of a side: which side it is (0: the baseline), the pid of the duel, and its socket, between
colons."""

_GONE = "The duel that this command is a side of has ended."
_NOISE_TO_SPREAD = 2.0  # noise of rounds to spread of processes, for the number of rounds of a session


class PairedSessions:
    """The sessions of one group of runs, those of its `sides`, or of jobs that are known by their keys alone.

    The seconds count from the first measured turn and include the start, warm-up and end of later processes. No number
    of rounds reveals the spread between processes. So a session has as many rounds as a restart is worth (Kalibera and
    Jones 2013): the square root of the restart's cost in rounds, times the ratio of the two kinds of noise. The last
    session takes the remaining time.
    """

    def __init__(self, options: PairedOptions, sides: Sides = ()) -> None:
        self._options = options
        self._sides = sides
        self._min_rounds = max(options.min_rounds, MIN_ROUNDS)
        self._log_ratios: list[list[list[float]]] = []  # by candidate, session and round
        self._keeper: TurnKeeper | None = None
        self._batch: Sequence[PlannedRun] = ()
        self._keys: list[frozenset[int]] = []
        self._can_restart: Callable[[], bool] = lambda: True
        self._ended_at: float | None = None  # the previous session
        self.has_next = False

    def start(self, batch: Sequence[PlannedRun], first: int) -> Turns:
        """Begin a session of `batch`, whose keys count from `first`; return the keeper of its turns."""
        self._batch = batch
        members = list(enumerate(batch, start=first))
        return self.begin(
            [frozenset(key for key, run in members if run.cell.signature in side) for side in self._sides],
            seed=int(batch[0].cell.signature[:8], 16),
            again=[key for key, run in members if run.action is Action.MEASURE],
            can_restart=lambda: all(run.paths.checkpoint.exists() for run in batch),
        )

    def begin(
        self, keys: Sequence[frozenset[int]], *, seed: int, again: Collection[int] = (), can_restart: Callable[[], bool]
    ) -> TurnKeeper:
        """Begin a session of jobs with these `keys`, a set for each side; return the keeper of their turns.

        `can_restart` says whether all processes left something to start a further session from.
        """
        self._keys, self._can_restart, self.has_next = list(keys), can_restart, False
        self._log_ratios = self._log_ratios or [[] for _ in keys[1:]]
        self._keeper = TurnKeeper(
            RoundRules(self._session_is_over, self._min_rounds, self._options.max_seconds),
            measuring_since=None if self._keeper is None else self._keeper.measuring_since,
            seed=seed + sum(map(len, self._log_ratios)),
            again=again,
        )
        return self._keeper

    def next_runs(self) -> list[PlannedRun]:
        """Return the runs to start again for a further session; empty without one."""
        if not self.has_next or self._keeper is None:
            return []
        again = _measured_in(self._batch, self._keeper.session)
        baseline, *candidates = ([run for run in again if run.cell.signature in side] for side in self._sides)
        return again if baseline and any(candidates) else []

    def _session_is_over(self, rounds: Sequence[Round]) -> bool:
        """Whether this session is over; sets `has_next` if another one follows."""
        ratios = self._ratios(rounds)
        sessions = [[*known, now] for known, now in zip(self._log_ratios, ratios, strict=True) if now]
        if all(is_narrow(each, self._options.half_width) for each in sessions):
            return True  # also if no side has a partner left
        if not self._is_worth_a_restart(len(rounds)):
            return False
        for known, now in zip(self._log_ratios, ratios, strict=True):
            known += [now] if len(now) >= MIN_ROUNDS else []
        self._ended_at = time.monotonic()
        self.has_next = True
        return True

    def _ratios(self, rounds: Sequence[Round]) -> list[list[float]]:
        """The log ratios of each candidate; empty for one without running processes."""
        last = rounds[-1].keys()
        baseline, *candidates = (keys & last for keys in self._keys)
        return [log_ratios(rounds, baseline, side) if baseline and side else [] for side in candidates]

    def _is_worth_a_restart(self, num_rounds: int) -> bool:
        keeper = self._keeper
        assert keeper is not None and keeper.start_seconds is not None
        if keeper.rounds_since is None or keeper.measuring_since is None:
            return False
        now = time.monotonic()
        began = self._ended_at if self._ended_at is not None else keeper.measuring_since - keeper.start_seconds
        restart, round_seconds = keeper.rounds_since - began, max((now - keeper.rounds_since) / num_rounds, 1e-9)
        left = keeper.measuring_since + self._options.max_seconds - now
        return (
            num_rounds >= _NOISE_TO_SPREAD * math.sqrt(restart / round_seconds)
            and now - began >= self._options.max_seconds / MAX_SESSIONS
            and left >= restart + self._min_rounds * round_seconds
            and self._can_restart()
        )


def _measured_in(batch: Sequence[PlannedRun], session: str) -> list[PlannedRun]:
    """Return the runs that finished in this session, to be measured again."""
    records = [(run, stored_record(run)) for run in batch]
    return [
        replace(run, action=Action.MEASURE, stored=record)
        for run, record in records
        if record is not None and record.status is Status.FINISHED and record.session == session
    ]


class DuelAddress(NamedTuple):
    """Where a side finds its duel."""

    side: int
    pid: int
    socket: str


def duel_address() -> DuelAddress | None:
    """Return the address of the duel that this process is a side of; None outside of one."""
    address = os.environ.get(DUEL_VARIABLE)
    if not address:
        return None
    side, pid, path = address.split(":", 2)
    return DuelAddress(int(side), int(pid), path)


def _connect_to(path: str) -> Connection:
    """Connect to a socket. Raises `RunManagerError` where no process listens."""
    try:
        return Client(path, "AF_UNIX")
    except OSError as error:
        raise RunManagerError(_GONE) from error


class RemoteSessions(Turns):
    """The sessions of a group whose other side is another driver's; the duel decides, and grants the turns.

    Without `options` the program takes no measured turns: each whole run is one turn.
    """

    def __init__(self, address: DuelAddress, options: PairedOptions | None) -> None:
        self._address = address
        self._options = options
        self._pipe = _connect_to(address.socket)
        self._pipe.send({"kind": "driver", "side": address.side})
        self._batch: Sequence[PlannedRun] = ()
        self._session, self._is_again = "", False

    @property
    def has_next(self) -> bool:
        return bool(self._ask(kind="has_next")["has_next"])

    def start(self, batch: Sequence[PlannedRun], first: int) -> Turns:
        """Begin a session when the other side begins it too."""
        self._batch = batch
        options = self._options
        self._is_again = any(run.action is Action.MEASURE for run in batch)
        answer = self._ask(
            kind="begin",
            signature=batch[0].cell.signature,
            checkpoints=[str(run.paths.checkpoint.absolute()) for run in batch],
            again=self._is_again,
            measure=None
            if options is None
            else {name: getattr(options, name) for name in ("min_rounds", "max_seconds", "half_width")},
        )
        if "refused" in answer:
            raise RunManagerError(answer["refused"])
        self._session = answer["session"]
        return self

    def next_runs(self) -> list[PlannedRun]:
        """Return the runs to start again for a further session; empty without one."""
        again = _measured_in(self._batch, self._session)
        if self._ask(kind="ended", can_repeat=bool(again))["again"]:
            return again
        self._pipe.close()
        return []

    def add(self, key: int) -> TurnClient:
        """Connect a job to the duel; its client is passed to its process."""
        pipe = _connect_to(self._address.socket)
        pipe.send({"kind": "job", "side": self._address.side})
        family = self._address.pid
        return TurnClient(pipe, self._session, again=self._is_again, family=family, reports_imports=True)

    def _ask(self, **message: Any) -> dict[str, Any]:
        try:
            self._pipe.send(message)
            answer: dict[str, Any] = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise RunManagerError(_GONE) from error
        return answer
