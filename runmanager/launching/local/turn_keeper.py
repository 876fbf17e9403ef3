"""Taking turns: the jobs of one group have the machine one at a time, until what they measured is enough.

A job asks through a pipe and waits. Nobody is given the machine while another job of the group is at anything else
than waiting, so a process that starts, trains or dies disturbs no turn. All this happens in the driver's one thread.
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

from runmanager.records.run.turn_record import Grant

__all__ = ["WARMUP_TURNS", "Round", "TurnClient", "TurnKeeper", "current_turn_client", "set_turn_client"]

Round = Mapping[int, float]
"""What the jobs measured in one round, in samples a second, by their keys; warm-up and what failed is not in it."""

WARMUP_TURNS = 3
"""Of each process: in them it finds, but for a busy machine, how many steps a turn is to have."""

_LOOK_SECONDS = 0.2
_ASKED_AGAIN = 1.05  # as many rounds as this times those that were not enough


@dataclass(frozen=True)
class _Ask:
    """A job gives its turn back, with what it measured, and wants the next one."""

    is_measured: bool
    samples: int
    seconds: float


class TurnClient:
    """A job's place among those that take turns; `session` is the name that all of them share.

    `again` tells a job that has ended before to take its measured turns once more.
    """

    def __init__(self, pipe: Connection, session: str, *, again: bool = False) -> None:
        self._pipe = pipe
        self.session = session
        self.again = again

    def ask(
        self, *, is_measured: bool, samples: int = 0, seconds: float = 0.0, is_cancelled: Callable[[], bool]
    ) -> Grant | None:
        """Give back the turn that this job has, if any, and wait for its next one; None: there is none any more.

        `samples` and `seconds` are what the turn measured. Measured turns begin when every job asks for one.
        Raises `EOFError` where the driver is gone, and nobody could give a turn.
        """
        try:
            self._pipe.send(_Ask(is_measured, samples, seconds))
            while True:
                # Asked first: where turns are short, the next one is there before a look at the pipe has waited.
                if is_cancelled():
                    return None
                if self._pipe.poll(_LOOK_SECONDS):
                    break
            grant: Grant | None = self._pipe.recv()
        except OSError as error:  # the pipe breaks in one way or another
            raise EOFError("the driver is gone") from error
        if grant is not None and grant.core is not None:
            _move_to(grant.core)
        return grant

    def close(self) -> None:
        self._pipe.close()


def _move_to(core: int) -> None:
    """Let this thread go on from another core; it may leave that when it likes.

    The kernel wakes a process where it slept. Two that take turns would each keep to a core of its own, and to whatever
    else is at work there.
    """
    with contextlib.suppress(OSError):  # a core that was taken offline
        usable = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})
        os.sched_setaffinity(0, usable)


_seats: list[TurnClient] = []


def set_turn_client(seat: TurnClient) -> None:
    """Let `seat` be this process's."""
    _seats[:] = [seat]


def current_turn_client() -> TurnClient | None:
    """This process's seat; None where it takes no turns."""
    return _seats[0] if _seats else None


@dataclass
class _Member:
    """A job of the group: it waits where it has `asked`, else it has a turn or is at something of its own."""

    pipe: Connection
    asked: _Ask | None = None
    asked_at: float = 0.0
    waited: float = 0.0
    num_turns: int = 0
    num_measured: int = 0
    is_warm: bool = False


class TurnKeeper:
    """Hands out turns, one job at a time, in an order that is drawn anew for each round.

    First every job has the turns that it wants for its training. When all of them want to be measured, the rounds
    begin: each has one turn a round. They end when `enough` says so of the rounds so far, asked from `min_rounds` on,
    or after `max_seconds`, or when fewer than two jobs are left. These seconds count from `measuring_since` on, by
    `clock`, or from the first measured turn. The jobs `again` have ended before, and only take their measured turns
    once more.

    `start_seconds` is how long the processes took until all of them could take turns; `rounds_since` is when the first
    round began that counts. Both are None until then.
    """

    def __init__(
        self,
        *,
        enough: Callable[[Sequence[Round]], bool],
        min_rounds: int,
        max_seconds: float,
        measuring_since: float | None = None,
        seed: int = 0,
        again: Collection[int] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.session = secrets.token_hex(4)
        self.rounds: list[Round] = []
        self.measuring_since = measuring_since
        self.start_seconds: float | None = None
        self.rounds_since: float | None = None
        self._enough = enough
        self._min_rounds = min_rounds
        self._max_seconds = max_seconds
        self._random = random.Random(seed)
        self._again = again
        self._clock = clock
        self._members: dict[int, _Member] = {}
        self._waited: dict[int, float] = {}
        self._order: list[int] = []
        self._round: dict[int, float] = {}
        self._round_number = 0
        self._core: int | None = None
        self._started_at = clock()
        self._next_question = min_rounds

    @property
    def pipes(self) -> list[Connection]:
        """Where to listen."""
        return [member.pipe for member in self._members.values()]

    def seat(self, key: int) -> TurnClient:
        """A place for the job `key`, to be handed to its process; to be closed here once that has it."""
        mine, theirs = connection.Pipe()
        self._members[key] = _Member(mine)
        self._waited[key] = 0.0
        return TurnClient(theirs, self.session, again=key in self._again)

    def started(self) -> None:
        """The last process so far has started."""
        self._started_at = self._clock()

    def leave(self, key: int) -> None:
        """A job is gone, and its turn with it; the others go on."""
        member = self._members.pop(key, None)
        if member is not None:
            member.pipe.close()
            self._advance()

    def clock(self, key: int) -> float:
        """Seconds that pass only while the job does not wait for its turn."""
        now = self._clock()
        member = self._members.get(key)
        waiting = now - member.asked_at if member is not None and member.asked is not None else 0.0
        return now - self._waited.get(key, 0.0) - waiting

    def hear(self, ready: Sequence[object]) -> None:
        """Take what jobs say through those of `pipes` that are ready, and let the next one have the machine."""
        for key, member in list(self._members.items()):
            if member.pipe in ready:
                try:
                    asked: _Ask = member.pipe.recv()
                except (EOFError, OSError):
                    self.leave(key)
                    continue
                member.asked, member.asked_at = asked, self._clock()
                if member.is_warm and asked.samples and asked.seconds > 0:
                    self._round[key] = asked.samples / asked.seconds
        self._advance()

    def _advance(self) -> None:
        members = self._members
        if not members or any(member.asked is None for member in members.values()):
            return
        if self.start_seconds is None:
            self.start_seconds = self._clock() - self._started_at
        training = {key: member for key, member in members.items() if member.asked and not member.asked.is_measured}
        if training:
            least = min(member.num_turns for member in training.values())
            self._grant(self._random.choice([key for key in training if training[key].num_turns == least]), Grant())
            return
        self._order = [key for key in self._order if key in members]
        if not self._order:
            self._end_round()
            if self._is_enough():
                self._dismiss()
                return
            self._begin_round()
        self._measure(self._order.pop(0))

    def _begin_round(self) -> None:
        now = self._clock()
        if self.measuring_since is None:
            self.measuring_since = now
        if self.rounds_since is None and all(each.num_measured >= WARMUP_TURNS for each in self._members.values()):
            self.rounds_since = now
        self._round_number += 1
        self._order = self._random.sample(list(self._members), len(self._members))
        if hasattr(os, "sched_getaffinity"):
            self._core = self._random.choice(sorted(os.sched_getaffinity(0)))

    def _measure(self, key: int) -> None:
        member = self._members[key]
        place = len(self._members) - len(self._order)
        member.is_warm = member.num_measured >= WARMUP_TURNS
        member.num_measured += 1
        self._grant(key, Grant(self._round_number, place, not member.is_warm, self._core))

    def _end_round(self) -> None:
        if len(self._round) > 1:
            self.rounds.append(self._round)
        self._round = {}

    def _is_enough(self) -> bool:
        since = self.measuring_since
        if len(self._members) < 2 or (since is not None and self._clock() - since >= self._max_seconds):
            return True
        if len(self.rounds) < self._next_question:
            return False
        # Not after every round: the answer takes its time, and a round more or less changes little.
        self._next_question = int(len(self.rounds) * _ASKED_AGAIN) + 1
        return self._enough(self.rounds)

    def _grant(self, key: int, grant: Grant) -> None:
        member = self._members[key]
        member.num_turns += 1
        self._reply(key, grant)

    def _dismiss(self) -> None:
        for key in list(self._members):
            self._reply(key, None)
            self._members.pop(key).pipe.close()

    def _reply(self, key: int, grant: Grant | None) -> None:
        member = self._members[key]
        self._waited[key] += self._clock() - member.asked_at
        member.asked = None
        with contextlib.suppress(OSError):  # it is dead, and its end will be told
            member.pipe.send(grant)
