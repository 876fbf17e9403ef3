"""The ranks of one run: what they have measured is added up at the end of each epoch, and they stop together."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from runmanager.errors import RankError, UsageError
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.text import error_line, first_line
from runmanager.tracking.epoch_metrics.epoch_totals import EpochTotals, add_totals

_GRACE_SECONDS = 10.0  # for ranks that have not started the run by the end of the first epoch of rank 0
_GROWTH = 8  # of an interval's number of steps: the first steps are slow


_Message = TypeVar("_Message", bound=msgspec.Struct)

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02  # seconds between two looks at the store
_LIFE_SECONDS = 0.1  # between two looks at another rank's process


class Beginning(msgspec.Struct, frozen=True):
    """A rank that has started the run. Rank 0 tells the run's folder, whether it `trains`, or why it has not begun."""

    process: ProcessIdentity
    trains: bool = True
    folder: str = ""
    error: str = ""


class Part(msgspec.Struct, frozen=True):
    """What one rank measured in an epoch; without totals its run has ended, with `error` if it failed.

    `stop` is what the rank asks for: to stop after this epoch.
    """

    number: int = 0
    totals: EpochTotals | None = None
    memory_bytes: int | None = None
    stop: Outcome | None = None
    error: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What all ranks have measured, as rank 0 answers; without totals its run has ended, with `error` if it failed.

    `stop` is what any rank has asked for. `next_steps` is the length of the next interval of steps.
    """

    totals: EpochTotals | None = None
    stop: Outcome | None = None
    next_steps: int = 1
    error: str = ""


class RankStore:
    """The messages of one run, of rank `rank`, in the process group's `store` below `prefix`.

    A message needs no collective, so it can disturb none of the program's, and a rank that is gone can be told from a
    slow one: each rank leaves its process's identity.

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


class RunRanks:
    """This rank among the `size` ranks of a run.

    ```
    begin      rank 0 tells whether it trains; the others wait for it
    share      the end of an epoch, in every rank: each posts its part, rank 0 adds them up and answers
    recorded   rank 0 has recorded the epoch; the others wait for it, as else they would do so in their next step
    request    asks all ranks to stop after their epoch
    leave      the run has ended here: no other rank waits for this one
    ```

    `find_store` returns the store of the process group, None before it is initialised: the ranks then meet at the end
    of the first epoch. Without any, rank 0 records what it has measured itself. `timeout` is in seconds. `number` is
    that of the run among those that each rank's process has started.
    """

    def __init__(self, rank: int, size: int, *, number: int, timeout: float, find_store: Callable[[], Any]) -> None:
        self.rank = rank
        self.size = size
        self.largest_memory: int | None = None
        self.has_shared = False
        self.waited_seconds = 0.0  # for slower ranks, at the end of the last epoch, while they trained
        self.stop: Outcome | None = None
        self._prefix = f"runmanager/{number}/"
        self._timeout = timeout
        self._find_store = find_store
        self._store: RankStore | None = None
        self._others = list(range(1, size))  # that rank 0 waits for
        self._is_over = False
        self._num_shared = 0
        self._request: Outcome | None = None
        self._note: Callable[[str], None] = lambda line: None
        self._memory: Callable[[], int | None] = lambda: None
        self._next_steps, self._seconds = 1, 0.0
        self._last_number, self._last_time = 0, time.monotonic()

    def attach(self, *, note: Callable[[str], None], memory: Callable[[], int | None]) -> None:
        """Use the run's `note` of deviations, and its peak `memory` in bytes."""
        self._note, self._memory = note, memory

    def _join(self, beginning: Beginning) -> RankStore | None:
        if self._store is None and (store := self._find_store()) is not None:
            joined = RankStore(store, self._prefix, rank=self.rank, timeout=self._timeout)
            joined.begin(beginning)
            self._store = joined
        return self._store

    def begin(self, *, trains: bool = True, folder: str = "", error: str = "") -> Beginning:
        """Tell the others of rank 0's run, or return what rank 0 has told.

        Raises `UsageError` if it was refused there, `RankError` if rank 0 is gone.
        """
        own = Beginning(ProcessIdentity.current(), trains, folder, error)
        store = self._join(own)
        if store is None or self.rank == 0:
            return own
        first = store.wait("begin/0", Beginning, sender=0, what="it started the run")
        if first.error:
            raise UsageError(f"The run was refused in rank 0: {first.error}")
        return first

    def request(self, stop: Outcome) -> None:
        """Ask all ranks to stop after the current epoch."""
        self._request = self._request or stop

    @property
    def pending(self) -> Outcome | None:
        """What this rank has asked for since the last epoch."""
        return self._request

    def record_every(self, seconds: float) -> int:
        """Return how many steps the next interval has in every rank, so that it takes about `seconds`."""
        self._seconds = seconds
        return self._next_steps

    def share(
        self, number: int, totals: EpochTotals, reductions: dict[str, str], weights: dict[str, int]
    ) -> EpochTotals:
        """Return the totals of all ranks for epoch `number`; `stop` is what any of them has asked for.

        Raises `RankError` if a rank is gone, has failed, or does not answer in time.
        """
        store = None if self._is_over else self._join(Beginning(ProcessIdentity.current()))
        if store is None:
            self.stop, self._request = self._request, None
            return totals
        own = Part(
            number,
            msgspec.structs.replace(totals, reductions=reductions, weights=weights),
            self._memory(),
            stop=self._request,
        )
        answer = self._gathered(store, own) if self.rank == 0 else self._answered(store, own)
        self._num_shared += 1
        if answer.totals is None:
            self._is_over = True
            return totals
        self.stop, self._request, self._next_steps = answer.stop, None, answer.next_steps
        return answer.totals

    def _answered(self, store: RankStore, part: Part) -> Answer:
        store.post(self._part_of(self.rank), part)
        what = f"it answered to epoch {part.number}"
        answer = store.wait(f"answer/{self._num_shared}", Answer, sender=0, what=what)
        self._refuse_failure(answer)
        return answer

    def _refuse_failure(self, answer: Answer) -> None:
        if answer.error:
            raise RankError(f"rank 0 failed: {answer.error}", rank=0)

    def _gathered(self, store: RankStore, own: Part) -> Answer:
        if not self.has_shared:
            self._drop_absent(store)
            self.has_shared = True
        begun_at = time.monotonic()
        parts = [own, *self._parts_of_others(store, own)]
        waited = time.monotonic() - begun_at
        self.largest_memory = max((part.memory_bytes or 0 for part in parts), default=0) or None
        known = [part.totals for part in parts if part.totals is not None]
        totals = add_totals(known)
        self.waited_seconds = min(waited, max(totals.phase_seconds - known[0].phase_seconds, 0.0))
        answer = Answer(
            totals,
            stop=next((part.stop for part in parts if part.stop is not None), None),
            next_steps=self._steps_for(own.number),
        )
        store.post(f"answer/{self._num_shared}", answer)
        if self._num_shared:  # which all have read, as they have sent their parts since
            store.remove(f"answer/{self._num_shared - 1}")
            store.remove(f"recorded/{self._num_shared - 1}")
        return answer

    def recorded(self) -> None:
        """Let the next epoch begin in all ranks. Raises `RankError` if rank 0 has failed, or is gone."""
        if self._store is None or self._is_over or not self._num_shared:
            return
        key = f"recorded/{self._num_shared - 1}"
        if self.rank == 0:
            self._store.post(key, Answer())
            return
        try:
            answer = self._store.wait(key, Answer, sender=0, what="it recorded the epoch")
        except RankError:  # after the last epoch it may have ended well: the next one would tell
            return
        self._refuse_failure(answer)

    def _parts_of_others(self, store: RankStore, own: Part) -> list[Part]:
        found = []
        for rank in list(self._others):
            key = self._part_of(rank)
            part = store.wait(key, Part, sender=rank, what=f"it ended epoch {own.number}")
            store.remove(key)
            if part.error:
                raise RankError(f"{store.named(rank)} failed: {part.error}", rank=rank)
            if part.totals is None:
                self._others.remove(rank)
                self._note(f"rank {rank} ended its run before epoch {own.number}: what follows is without it")
            else:
                found.append(part)
        return found

    def _drop_absent(self, store: RankStore) -> None:
        """Do without the ranks that have not started the run: a program may do so in rank 0 alone."""
        until = time.monotonic() + min(_GRACE_SECONDS, self._timeout)
        absent = list(self._others)
        while absent := [rank for rank in absent if store.beginning(rank) is None]:
            if time.monotonic() >= until:
                names = ", ".join(map(str, absent))
                self._note(f"of {self.size} ranks, {names} started no run: samples and metrics are without theirs")
                self._others = [rank for rank in self._others if rank not in absent]
                return
            time.sleep(0.02)

    def _steps_for(self, number: int) -> int:
        """Return the number of steps that take as long as an interval should, from those since the last one."""
        steps, now = max(number - self._last_number, 1), time.monotonic()
        wanted = steps * self._seconds / max(now - self._last_time, 1e-6)
        self._last_number, self._last_time = number, now
        return max(1, min(round(wanted), _GROWTH * steps))

    def leave(self, error: BaseException | None) -> None:
        """Tell the others that the run has ended here."""
        if self._store is None or self._is_over:
            return
        self._is_over = True
        line = "" if error is None else error_line(error)
        try:
            if self.rank == 0:
                self._store.post(f"answer/{self._num_shared}", Answer(error=line))
                self._store.post(f"recorded/{self._num_shared - 1}", Answer(error=line))
            else:
                self._store.post(self._part_of(self.rank), Part(error=line))
        except RankError:  # nothing is left to tell
            pass

    def _part_of(self, rank: int) -> str:
        return f"part/{self._num_shared}/{rank}"

    def outcome(self, error: BaseException, own: Outcome) -> Outcome:
        """Return the outcome of a run that ended with `error`, whose own outcome is `own`: another rank may be gone."""
        if self._store is None or not isinstance(error, Exception):
            return own
        try:
            return self._outcome(self._store, error, own)
        except RankError:
            return own

    def _outcome(self, store: RankStore, error: Exception, own: Outcome) -> Outcome:
        for rank in self._others if self.rank == 0 else [0]:
            part = store.find(self._part_of(rank), Part) if self.rank == 0 else None
            if part is not None:
                if part.error and part.error != error_line(error):
                    message = f"{own.message}; {store.named(rank)} failed before: {part.error}"
                    return msgspec.structs.replace(own, message=message)
            elif store.is_gone(rank):
                told = f"{store.named(rank)} ended without recording an end; {error_line(error)}"
                if isinstance(error, RankError | RuntimeError):  # as that of a collective
                    return Outcome(Status.CRASHED, Reason.VANISHED, told)
        return own
