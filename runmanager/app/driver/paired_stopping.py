"""The sessions of a paired group: pairs of processes, restarted until their spread is known or the time is spent."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from runmanager.app.driver.other_drivers import stored_record
from runmanager.launching.local.turn_keeper import Round, TurnKeeper
from runmanager.launching.plan import Action, PlannedRun
from runmanager.records.run.status import Status
from runmanager.results.stats.paired_speedup import LEAST_ROUNDS, is_narrow, log_ratios
from runmanager.training.options.measure import PairedOptions

__all__ = ["PairedSessions", "Sides"]

Sides = tuple[frozenset[str], ...]
"""The signatures of each side of a group, the baseline's first."""

_NOISE_TO_SPREAD = 2.0  # of rounds to that of processes, for how many rounds a session has
_MOST_SESSIONS = 20  # more would say little more, and each leaves an attempt in the run's record


class PairedSessions:
    """Measures one group in sessions: in each, all of its runs take turns in fresh processes.

    ```
    first session          train, warm up, rounds
    each later session     start from the checkpoint, warm up, rounds
    until                  every speedup is known within `measure.half_width`,
                           or no further session fits into `measure.max_seconds`
    ```

    The seconds count from the first measured turn on; what later processes take to start, to warm up and to end is
    part of them. Between two processes lies what no number of rounds can tell, so rounds are as many as a restart is
    worth and no more (Kalibera and Jones 2013): the square root of its cost in rounds, times the ratio of the two
    kinds of noise. The last session takes all the time that is left.
    """

    def __init__(self, options: PairedOptions, sides: Sides, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._sides = sides
        self._clock = clock
        self._least = max(options.min_rounds, LEAST_ROUNDS)
        self._known: list[list[list[float]]] = [[] for _ in sides[1:]]  # log ratios by candidate, session and round
        self._keeper: TurnKeeper | None = None
        self._keys: list[frozenset[int]] = []
        self._batch: Sequence[PlannedRun] = ()
        self._ended_at: float | None = None  # the session before this one
        self.goes_on = False

    def keeper(self, batch: Sequence[PlannedRun], first: int) -> TurnKeeper:
        """Who hands out the turns of the next session, to runs whose keys count from `first`."""
        self._batch, self.goes_on = batch, False
        self._keys = [
            frozenset(first + place for place, run in enumerate(batch) if run.cell.signature in side)
            for side in self._sides
        ]
        self._keeper = TurnKeeper(
            enough=self._is_over,
            min_rounds=self._least,
            max_seconds=self._options.max_seconds,
            measuring_since=None if self._keeper is None else self._keeper.measuring_since,
            seed=int(batch[0].cell.signature[:8], 16) + sum(map(len, self._known)),
            again=[first + place for place, run in enumerate(batch) if run.action is Action.MEASURE],
            clock=self._clock,
        )
        return self._keeper

    def following(self) -> list[PlannedRun]:
        """The runs that are to start again for a further session; none where there is to be none."""
        if not self.goes_on or self._keeper is None:
            return []
        records = [(run, stored_record(run)) for run in self._batch]
        again = [
            replace(run, action=Action.MEASURE, stored=record)
            for run, record in records
            if record is not None and record.status is Status.FINISHED and record.session == self._keeper.session
        ]
        there = [any(run.cell.signature in side for run in again) for side in self._sides]
        return again if there[0] and any(there[1:]) else []

    def _is_over(self, rounds: Sequence[Round]) -> bool:
        """Whether this session is; `goes_on` says whether there is to be another."""
        ratios = self._ratios(rounds)
        sessions = [[*known, now] for known, now in zip(self._known, ratios, strict=True) if now]
        if all(is_narrow(each, self._options.half_width) for each in sessions):
            return True  # also where nobody is left to be held against another
        if not self._is_worth_a_restart(len(rounds)):
            return False
        for known, now in zip(self._known, ratios, strict=True):
            known += [now] if len(now) >= LEAST_ROUNDS else []
        self._ended_at = self._clock()
        self.goes_on = True
        return True

    def _ratios(self, rounds: Sequence[Round]) -> list[list[float]]:
        """The log ratios of each candidate; nothing for one of which nobody is left."""
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
            and now - began >= self._options.max_seconds / _MOST_SESSIONS
            and left >= restart + self._least * round_seconds
            and all(run.paths.checkpoint.exists() for run in self._batch)
        )
