"""The sessions of a paired group: its processes are restarted until the speedup is precise or the time is up."""

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from runmanager.app.driver.other_drivers import stored_record
from runmanager.launching.local.turn_keeper import Round, TurnKeeper
from runmanager.launching.plan import Action, PlannedRun
from runmanager.records.run.status import Status
from runmanager.results.stats.paired_speedup import MAX_SESSIONS, MIN_ROUNDS, is_narrow, log_ratios
from runmanager.training.options.groups import PairedOptions

__all__ = ["PairedSessions", "Sides"]

Sides = tuple[frozenset[str], ...]
"""The signatures of each side of a group, the baseline's first."""

_NOISE_TO_SPREAD = 2.0  # noise of rounds to spread of processes, for the number of rounds of a session


class PairedSessions:
    """Measures one group in sessions; in each, all runs of the group take turns in new processes.

    ```
    first session          train, warm up, rounds
    each later session     start from the checkpoint, warm up, rounds
    until                  every speedup is known within `measure.half_width`,
                           or no further session fits into `measure.max_seconds`
    ```

    The seconds count from the first measured turn and include the start, warm-up and end of later processes. No number
    of rounds reveals the spread between processes. So a session has as many rounds as a restart is worth (Kalibera and
    Jones 2013): the square root of the restart's cost in rounds, times the ratio of the two kinds of noise. The last
    session takes the remaining time.
    """

    def __init__(self, options: PairedOptions, sides: Sides, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._sides = sides
        self._clock = clock
        self._min_rounds = max(options.min_rounds, MIN_ROUNDS)
        self._log_ratios: list[list[list[float]]] = [[] for _ in sides[1:]]  # by candidate, session and round
        self._keeper: TurnKeeper | None = None
        self._keys: list[frozenset[int]] = []
        self._batch: Sequence[PlannedRun] = ()
        self._can_restart: Callable[[], bool] = lambda: True
        self._ended_at: float | None = None  # the previous session
        self.has_next = False

    def start(self, batch: Sequence[PlannedRun], first: int) -> TurnKeeper:
        """Begin a session of `batch`, whose keys count from `first`; return the keeper of its turns."""
        self._batch = batch
        keys = [
            frozenset(first + index for index, run in enumerate(batch) if run.cell.signature in side)
            for side in self._sides
        ]
        return self.begin(
            keys,
            seed=int(batch[0].cell.signature[:8], 16),
            again=[first + index for index, run in enumerate(batch) if run.action is Action.MEASURE],
            can_restart=lambda: all(run.paths.checkpoint.exists() for run in batch),
        )

    def begin(
        self,
        keys: Sequence[frozenset[int]],
        *,
        seed: int = 0,
        again: Collection[int] = (),
        can_restart: Callable[[], bool] = lambda: True,
    ) -> TurnKeeper:
        """Begin a session of jobs with these `keys`, a set for each side; return the keeper of their turns.

        `can_restart` says whether all processes left something to start a further session from.
        """
        self._keys, self._can_restart, self.has_next = list(keys), can_restart, False
        self._keeper = TurnKeeper(
            enough=self._session_is_over,
            min_rounds=self._min_rounds,
            max_seconds=self._options.max_seconds,
            measuring_since=None if self._keeper is None else self._keeper.measuring_since,
            seed=seed + sum(map(len, self._log_ratios)),
            again=again,
            clock=self._clock,
        )
        return self._keeper

    def next_runs(self) -> list[PlannedRun]:
        """Return the runs to start again for a further session; empty without one."""
        if not self.has_next or self._keeper is None:
            return []
        records = [(run, stored_record(run)) for run in self._batch]
        again = [
            replace(run, action=Action.MEASURE, stored=record)
            for run, record in records
            if record is not None and record.status is Status.FINISHED and record.session == self._keeper.session
        ]
        remaining = [any(run.cell.signature in side for run in again) for side in self._sides]
        return again if remaining[0] and any(remaining[1:]) else []

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
        self._ended_at = self._clock()
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
        now = self._clock()
        began = self._ended_at if self._ended_at is not None else keeper.measuring_since - keeper.start_seconds
        restart, round_seconds = keeper.rounds_since - began, max((now - keeper.rounds_since) / num_rounds, 1e-9)
        left = keeper.measuring_since + self._options.max_seconds - now
        return (
            num_rounds >= _NOISE_TO_SPREAD * math.sqrt(restart / round_seconds)
            and now - began >= self._options.max_seconds / MAX_SESSIONS
            and left >= restart + self._min_rounds * round_seconds
            and self._can_restart()
        )
