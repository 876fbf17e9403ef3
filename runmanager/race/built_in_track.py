"""The race of settings of the built-in job: a process for each contender, which take turns on this machine."""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from hydra.core.utils import JobReturn, JobStatus

from runmanager.errors import ConfigurationError
from runmanager.launching.hydra_internals import job_exception
from runmanager.launching.launcher import CellJob, CellLauncher
from runmanager.launching.local.jobs import Listener
from runmanager.launching.work import Work
from runmanager.race.heat import LEAST_ROUNDS, Heat, Settings, beaten, fastest_of, is_settled, label_of, race_speedup
from runmanager.race.keeper import Round, RoundRules, TurnKeeper
from runmanager.records.host.process import usable_cores
from runmanager.records.run.run_record import WARMUP_TURNS
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.results.stats.paired_speedup import MIN_ROUNDS
from runmanager.training.options.job import TrainingOptions

if TYPE_CHECKING:
    from runmanager.training.options.job import TrainingOptions


@dataclass(frozen=True)
class Seen:
    """What the process of a contender saw; `failure` is set where it failed. See `train_contender`."""

    failure: Outcome | None = None
    device: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    start_seconds: float = 0.0
    step_seconds: float = 0.0
    epoch_steps: int = 1
    splits: bool = True
    chosen: Mapping[str, bool | int | None] = field(default_factory=dict)


def run_contender(options: "TrainingOptions", threads: int | None) -> Seen:
    """Train a cell's job in the turns of this process."""
    import torch

    from runmanager.launching.local.turns import current_turn_client
    from runmanager.tracking.lifecycle.outcome import outcome_of
    from runmanager.training.speed_race import train_contender

    if threads is not None:
        torch.set_num_threads(threads)
    turns = current_turn_client()
    assert turns is not None, "a contender takes turns"
    try:
        return Seen(**train_contender(options, turns))
    except EOFError:
        raise  # its driver is gone
    except Exception as error:
        return Seen(failure=outcome_of(error, batch_size=options.batch_size))


_TURN_SECONDS = 0.12
_SLOW_STEP = 0.3  # seconds; a turn is a step then, and a single one warms up
_SECONDS_ALONE, _TURNS_ALONE = 1.0, 3  # at least, of the first contender
_ROUNDS = 12  # of a session
_MAX_SESSIONS = 2  # of a heat
_LOOKS = 2  # after the first rounds of a heat, and before its second session
_MAX_LAST_SESSIONS = 8  # of the heat that measures the gain
_OF_MANY = (Reason.OUT_OF_MEMORY, Reason.EXIT)  # how a process fails that finds no memory: by itself, or killed
_LEAST_TIMEOUT = 30.0  # seconds after which a contender that does not get ready is given up


@dataclass(frozen=True)
class Entry:
    """What a contender trains, and on how many threads; None for those of any run."""

    options: TrainingOptions
    threads: int | None = None


@dataclass
class _State:
    """A heat under way: its sessions so far, and who is left."""

    running: set[int]
    sessions: list[list[dict[int, float]]] = field(default_factory=list)
    seen: dict[int, Seen] = field(default_factory=dict)
    failures: dict[int, Outcome] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    alone: set[int] = field(default_factory=set)  # those that were raced against the first one alone
    is_interrupted: bool = False


class BuiltInTrack:
    """Races contenders that `enter` makes of their settings; a contender that cannot be made has failed.

    All processes of a session exist together and one works at a time. A second session, of new processes, follows where
    it fits the time: no two processes are equally fast.
    """

    def __init__(self, launcher: CellLauncher, enter: Callable[[Settings], Entry], *, seconds: float) -> None:
        self._enter = enter
        self._entered: dict[str, Entry] = {}  # to compose a cell takes a hundredth of a second
        timeout = max(seconds, _LEAST_TIMEOUT)
        self._launcher = launcher.with_each_run_once(timeout=timeout, stall_timeout=None)
        self._start_seconds = 1.0  # of a single contender
        self._seen = Seen()
        self._warmup_turns = WARMUP_TURNS

    def try_alone(self, settings: Settings) -> Seen:
        """Train one contender alone for a second, and return what was seen of it."""
        rules = RoundRules(
            lambda _: time.monotonic() - (keeper.measuring_since or 0.0) >= _SECONDS_ALONE,
            min_rounds=_TURNS_ALONE,
            max_seconds=math.inf,
            warmup_turns=0,
            least_jobs=1,
        )
        keeper = TurnKeeper(rules)
        (seen,) = self._launch([self._enter(settings)], keeper)
        self._seen = seen
        if seen.device == "cpu" and seen.step_seconds >= _SLOW_STEP:
            self._warmup_turns = 1
        self._start_seconds = seen.start_seconds
        return seen

    def needed(self, contenders: Sequence[Settings]) -> float:
        """The seconds of a heat with as few rounds as count."""
        entries, _ = self._entries(contenders)
        return self._needed(entries.values(), LEAST_ROUNDS)

    def _needed(self, entries: Collection[Entry], rounds: int) -> float:
        turns = sum(self._turn_seconds(each.options) for each in entries)
        return self._starting(len(entries)) + turns * (self._warmup_turns + rounds)

    def _turn_seconds(self, options: TrainingOptions) -> float:
        """The seconds of a turn, by the step of the first contender: others may have another one."""
        return max(_TURN_SECONDS, self._seen.step_seconds * options.least_turn_steps(self._seen.epoch_steps))

    def _starting(self, count: int) -> float:
        """The seconds until so many contenders are ready, which share the cores."""
        return self._start_seconds * max(1.0, count / usable_cores())

    def race(self, contenders: Sequence[Settings], *, seconds: float, is_last: bool = False) -> Heat:
        """Race the contenders; see `Track`."""
        entries, faults = self._entries(contenders)
        state = _State(running=set(entries))
        deadline = time.monotonic() + seconds
        try:
            self._run_sessions(state, entries, deadline, is_last=is_last)
        except KeyboardInterrupt:
            state.is_interrupted = True
        failures = faults | {key: _reason(each) for key, each in state.failures.items()}
        rows = max(len(entries) - 1, 1)
        found = {key: race_speedup(state.sessions, 0, key, rows=rows) for key in entries if key}
        return Heat(
            {key: each for key, each in found.items() if each is not None and key not in failures},
            failures,
            frozenset(state.dropped),
            _fastest(state, {key: each.value for key, each in found.items() if each is not None}),
            {key: each.shares for key, each in state.seen.items() if each.shares},
            state.is_interrupted,
        )

    def _entries(self, contenders: Sequence[Settings]) -> tuple[dict[int, Entry], dict[int, str]]:
        entries: dict[int, Entry] = {}
        faults: dict[int, str] = {}
        for key, settings in enumerate(contenders):
            label = label_of(settings)
            try:
                entries[key] = self._entered[label] = self._entered.get(label) or self._enter(settings)
            except ConfigurationError as error:
                faults[key] = error.faults[0]
        return entries, faults

    def _run_sessions(self, state: _State, entries: Mapping[int, Entry], deadline: float, *, is_last: bool) -> None:
        for number in range(_MAX_LAST_SESSIONS if is_last else _MAX_SESSIONS):
            if number and not is_last:
                state.dropped |= beaten(state.sessions, state.running, looks=_LOOKS)
                state.running -= state.dropped
            left = deadline - time.monotonic()
            if len(state.running) < 2 or (
                number and left < self._needed([entries[key] for key in state.running], MIN_ROUNDS)
            ):
                break
            self._run_session(state, entries, sorted(state.running), left, number, is_last=is_last)
            if is_last and len(entries) == 2 and is_settled(race_speedup(state.sessions, 0, 1, rows=1)):
                break
        self._try_in_pairs(state, entries, deadline)

    def _try_in_pairs(self, state: _State, entries: Mapping[int, Entry], deadline: float) -> None:
        """Race those that failed among several others again, each against the first alone: they share the memory."""
        failed = {key for key, each in state.failures.items() if each.reason in _OF_MANY}
        if len(entries) < 3 or not failed:
            return
        for key in sorted(set(entries) - {0} if 0 in failed else failed):
            if self._needed([entries[0], entries[key]], LEAST_ROUNDS) > deadline - time.monotonic():
                return
            for each in (0, key):
                state.failures.pop(each, None)
            self._run_session(state, entries, [0, key], deadline - time.monotonic(), len(state.sessions))
            state.alone |= {key} - set(state.failures)

    def _run_session(
        self,
        state: _State,
        entries: Mapping[int, Entry],
        keys: Sequence[int],
        seconds: float,
        number: int,
        *,
        is_last: bool = False,
    ) -> None:
        """Start the processes of `keys`, let them take turns, and add what they measured to the state."""
        running = set(keys)
        seconds = max(seconds, self._needed([entries[key] for key in keys], LEAST_ROUNDS))
        until = time.monotonic() + seconds
        rounds: list[dict[int, float]] = []
        state.sessions.append(rounds)

        def enough(measured: Sequence[Round]) -> bool:
            rounds[:] = [{keys[at]: value for at, value in each.items()} for each in measured]
            if not is_last and number == 0 and len(measured) == LEAST_ROUNDS:
                losers = beaten(state.sessions, running & set(rounds[-1]), looks=_LOOKS)
                state.dropped |= losers
                running.difference_update(losers)
                keeper.end_turns([at for at, key in enumerate(keys) if key in losers])
            is_late = time.monotonic() > until  # the processes took longer to start than was thought
            return len(running) < 2 or len(measured) >= _ROUNDS or is_late

        left = seconds - self._starting(len(keys))
        keeper = TurnKeeper(RoundRules(enough, LEAST_ROUNDS, left, warmup_turns=self._warmup_turns), seed=number)
        began = time.monotonic()
        try:
            seen = self._launch([entries[key] for key in keys], keeper)
        finally:
            rounds[:] = [{keys[at]: value for at, value in each.items()} for each in keeper.rounds]
        if keeper.measuring_since is not None:
            self._start_seconds = (keeper.measuring_since - began) / max(1.0, len(keys) / usable_cores())
        for key, each in zip(keys, seen, strict=True):
            if each.failure is None:
                state.seen[key] = each
            else:
                state.failures[key] = each.failure
        state.running -= state.dropped | set(state.failures)

    def _launch(self, entries: Sequence[Entry], keeper: TurnKeeper) -> list[Seen]:
        def job_of(key: int, entry: Entry) -> CellJob:
            work = Work(run_contender, (entry.options, entry.threads))
            return CellJob(key, (), lambda _: work, entry.options.device)

        returns = self._launcher.run(map(job_of, count(), entries), Listener(), keeper)
        return [_seen(returns[key]) for key in range(len(entries))]


def _seen(result: JobReturn) -> Seen:
    if result.status is JobStatus.COMPLETED and isinstance(result.return_value, Seen):
        return result.return_value
    return Seen(failure=Outcome(Status.FAILED, Reason.EXIT, str(job_exception(result))))


def _fastest(state: _State, speeds: Mapping[int, float]) -> int:
    fastest = fastest_of(state.sessions, state.running) if state.running else 0
    return max([fastest, *sorted(state.alone)], key=lambda key: speeds.get(key, 1.0))


def _reason(outcome: Outcome) -> str:
    return f"{outcome.reason}: {outcome.message}" if outcome.reason else outcome.message
