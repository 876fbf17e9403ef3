"""The keeper of turns: the jobs of a group use the machine one at a time, until enough is measured.

A turn is granted only while all other jobs of the group wait, so a process that starts, trains or dies disturbs no
turn. All of this happens in one thread of the driver.
"""

import contextlib
import os
import random
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from types import SimpleNamespace

from runmanager.launching.local.turns import TurnClient, Turns, message_of, received
from runmanager.records.run.run_record import WARMUP_TURNS, Grant

Round = Mapping[int, float]
"""The measurements of one round, in samples per second by the keys of the jobs, without warm-up and failures."""

_RECHECK_FACTOR = 1.05  # the next check comes after this many times the rounds of the last


@dataclass
class _Member:
    """A job of the group. It waits while it has a `request`; else it has a turn, starts or ends."""

    pipe: Connection
    request: SimpleNamespace | None = None
    requested_at: float = 0.0
    num_turns: int = 0
    num_measured: int = 0
    is_warm: bool = False


@dataclass(frozen=True)
class RoundRules:
    """When the rounds of a session end, and which turns count.

    They end when `enough`, called from `min_rounds` on, returns True for the rounds so far, or after `max_seconds`, or
    when fewer than `least_jobs` are left. The first `warmup_turns` of each job do not count.
    """

    enough: Callable[[Sequence[Round]], bool]
    min_rounds: int
    max_seconds: float
    warmup_turns: int = WARMUP_TURNS
    least_jobs: int = 2


class TurnKeeper(Turns):
    """Grants turns, one job at a time, in a random order that is drawn for each round.

    First every job gets the turns that it requests for training. When all request measured turns, the rounds begin:
    one turn per job and round, until `rules` end them. Their seconds count from `measuring_since` on, by `clock`, or
    from the first measured turn. The jobs in `again` have ended before, and only take measured turns.

    `start_seconds` is how long the processes took until all could take turns; `rounds_since` is when the first round
    that counts began. Both are None until then. `imported` has the files that jobs have reported.
    """

    def __init__(
        self,
        rules: RoundRules,
        *,
        measuring_since: float | None = None,
        seed: int = 0,
        again: Collection[int] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.session = secrets.token_hex(4)
        self.rounds: list[Round] = []
        self.imported: dict[int, tuple[str, ...]] = {}
        self.measuring_since = measuring_since
        self.start_seconds: float | None = None
        self.rounds_since: float | None = None
        self._rules = rules
        self._random = random.Random(seed)  # noqa: S311  # an order of turns
        self._again = again
        self._clock = clock
        self._members: dict[int, _Member] = {}
        self._waited: dict[int, float] = {}
        self._order: list[int] = []
        self._round: dict[int, float] = {}
        self._round_number = 0
        self._round_since = 0.0
        self._core: int | None = None
        self._started_at = clock()
        self._next_check = rules.min_rounds

    @property
    def pipes(self) -> list[Connection]:
        return [member.pipe for member in self._members.values()]

    def add(self, key: int) -> TurnClient:
        mine, theirs = connection.Pipe()
        self.join(key, mine)
        return TurnClient(theirs, self.session, again=key in self._again)

    def join(self, key: int, pipe: Connection) -> None:
        """Add the job `key`, whose client has the other end of `pipe`."""
        self._members[key] = _Member(pipe)
        self._waited[key] = 0.0

    def started(self) -> None:
        self._started_at = self._clock()

    def remove(self, key: int) -> None:
        member = self._members.pop(key, None)
        if member is not None:
            member.pipe.close()
            self._advance()

    def clock(self, key: int) -> float:
        now = self._clock()
        member = self._members.get(key)
        waiting = now - member.requested_at if member is not None and member.request is not None else 0.0
        return now - self._waited.get(key, 0.0) - waiting

    def end_turns(self, keys: Collection[int]) -> None:
        """Tell jobs that wait that their turns are over; called by `enough`. The others continue when they are gone."""
        for key in keys:
            self._reply(key, None)

    def receive(self, ready: Sequence[object]) -> None:
        for key, member in list(self._members.items()):
            if member.pipe in ready:
                try:
                    request = received(member.pipe)
                except (EOFError, OSError):
                    self.remove(key)
                    continue
                member.request, member.requested_at = request, self._clock()
                if request.imported:
                    self.imported[key] = request.imported
                if member.is_warm and request.samples and request.seconds > 0:
                    self._round[key] = request.samples / request.seconds
        self._advance()

    def _advance(self) -> None:
        members = self._members
        if not members or any(member.request is None for member in members.values()):
            return
        if self.start_seconds is None:
            self.start_seconds = self._clock() - self._started_at
        training = {key: each for key, each in members.items() if each.request and not each.request.is_measured}
        if training:
            least = min(member.num_turns for member in training.values())
            self._grant(self._random.choice([key for key in training if training[key].num_turns == least]), Grant())
            return
        self._order = [key for key in self._order if key in members]
        if not self._order:
            self._end_round()
            if self._is_over():
                self._end_turns()
                return
            if any(member.request is None for member in members.values()):
                return  # some were told to end, and must be gone before the next turn
            self._begin_round()
        self._measure(self._order.pop(0))

    def _begin_round(self) -> None:
        now = self._clock()
        if self.measuring_since is None:
            self.measuring_since = now
        if self.rounds_since is None and all(
            each.num_measured >= self._rules.warmup_turns for each in self._members.values()
        ):
            self.rounds_since = now
        self._round_since = now
        self._round_number += 1
        self._order = self._random.sample(list(self._members), len(self._members))
        if hasattr(os, "sched_getaffinity"):
            self._core = self._random.choice(sorted(os.sched_getaffinity(0)))

    def _measure(self, key: int) -> None:
        member = self._members[key]
        position = len(self._members) - len(self._order)
        member.is_warm = member.num_measured >= self._rules.warmup_turns
        member.num_measured += 1
        self._grant(key, Grant(self._round_number, position, not member.is_warm, self._core))

    def _end_round(self) -> None:
        if len(self._round) >= self._rules.least_jobs:
            self.rounds.append(self._round)
        self._round = {}

    def _is_over(self) -> bool:
        if len(self._members) < self._rules.least_jobs or self._is_time_up():
            return True
        if len(self.rounds) < self._next_check:
            return False
        # Not after every round: the check takes time, and a round more or less changes little.
        self._next_check = int(len(self.rounds) * _RECHECK_FACTOR) + 1
        return self._rules.enough(self.rounds)

    def _is_time_up(self) -> bool:
        """Whether the seconds are over, or would be before another round ends, once there are enough rounds."""
        if self.measuring_since is None:
            return False
        now = self._clock()
        left = self.measuring_since + self._rules.max_seconds - now
        return left <= 0 or (len(self.rounds) >= self._rules.min_rounds and now - self._round_since > left)

    def _grant(self, key: int, grant: Grant) -> None:
        member = self._members[key]
        member.num_turns += 1
        self._reply(key, grant)

    def _end_turns(self) -> None:
        for key in [key for key, member in self._members.items() if member.request is not None]:
            self._reply(key, None)
            self._members.pop(key).pipe.close()

    def _reply(self, key: int, grant: Grant | None) -> None:
        member = self._members[key]
        self._waited[key] += self._clock() - member.requested_at
        member.request = None
        with contextlib.suppress(OSError):  # it is dead, and `remove` will be called
            member.pipe.send(None if grant is None else message_of(**vars(grant)))
