"""Following a sweep from its files alone: its cells as they stand, and their progress until the last has ended."""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console, RenderableType

from runmanager.app.display.progress import MovingPart, RunDisplay, in_terminal
from runmanager.app.display.run_line import epochs_of, measure_seconds_of, run_label, run_line
from runmanager.app.display.sweep_summary import show_results
from runmanager.app.follow.slurm_state import QueuedCells
from runmanager.errors import RecordError
from runmanager.launching.slurm.queue import WAITING_STATES, SlurmQueue
from runmanager.records.files.atomic_files import FileStamp, file_stamp
from runmanager.records.files.paths import RECORD, RunPaths, SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver, describe_last_heartbeat, read_beat
from runmanager.records.run.record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.bulk_reading import SharedParts, gc_paused
from runmanager.records.storage.reader import read_epochs, read_record, run_names
from runmanager.records.sweep.record import PlannedCell, SweepRecord, read_sweep_record
from runmanager.text import pluralize

__all__ = [
    *("CellState", "SweepReader", "SweepState"),
    *("follow_runs", "follow_sweep", "show_state", "write_missing_report"),
]

LOOK_SECONDS = 0.5
_NOT_ENDED = object()


@dataclass(frozen=True)
class CellState:
    """A cell's run: its record, states made true; None before it has begun, and where its file is damaged.

    `is_queued` is whether Slurm has a job for it; None where it was given one and cannot be asked. `is_put_back` is
    whether Slurm has put the job of a run that it had stopped back into its queue.
    """

    paths: RunPaths
    record: RunRecord | None
    is_damaged: bool = False
    is_queued: bool | None = False
    is_put_back: bool = False

    @property
    def is_ended(self) -> bool:
        return self.is_damaged or (self.record is not None and self.record.status.is_ended)

    @property
    def is_running(self) -> bool:
        return self.record is not None and self.record.status is Status.RUNNING

    @property
    def is_waiting(self) -> bool:
        """Whether it is still to begin, or to go on."""
        return self.is_put_back or not (self.is_ended or self.is_running)

    @property
    def word(self) -> str:
        if self.is_waiting:
            return _WAITING_WORDS[self.is_queued]
        return "damaged" if self.record is None else str(self.record.status)


_WAITING_WORDS = {True: "queued", False: str(Status.PENDING), None: "handed to Slurm"}


@dataclass(frozen=True)
class SweepState:
    """The cells in order, and whether a driver is at them: None where only its own host could tell."""

    cells: Sequence[CellState]
    is_driven: bool | None

    @property
    def is_ended(self) -> bool:
        """Whether every cell has ended and nobody is about to begin one again."""
        return self.is_driven is False and all(cell.is_ended and not cell.is_queued for cell in self.cells)

    @property
    def status(self) -> int:
        """The sweep's exit status as far as it is known: 1 as soon as a run has ended badly."""
        ended = [cell for cell in self.cells if cell.is_ended and not cell.is_put_back]
        return int(any(cell.record is None or not cell.record.status.is_success for cell in ended))

    def in_words(self) -> str:
        """How many cells are in which state."""
        counts = Counter(cell.word for cell in self.cells)
        return f"{self.size_in_words()}: " + ", ".join(f"{number} {word}" for word, number in counts.items())

    def size_in_words(self) -> str:
        """How many cells there are."""
        return pluralize(len(self.cells), "cell")


class SweepReader:
    """Reads a sweep's state again and again; files that did not change are not read again.

    What is on another host is judged by `observer`: a run by its heartbeat, and a driver is taken to be gone when it
    has let no record change for the same time. `queue` is asked for the cells that were handed to Slurm; None asks
    nobody.
    """

    def __init__(
        self, paths: SweepPaths, *, observer: HeartbeatObserver | None = None, queue: SlurmQueue | None = None
    ) -> None:
        self.root = paths.root
        self._paths = paths
        self._observer = observer or HeartbeatObserver()
        self._queued = QueuedCells(paths, queue, clock=self._observer.clock)
        self._plan: tuple[FileStamp | None, SweepRecord | None] = (None, None)
        self._known: dict[str, tuple[FileStamp, CellState]] = {}
        self._last: dict[str, FileStamp] | None = None
        self._shared = SharedParts()
        self._changed_at = self._observer.clock()

    @gc_paused()
    def read(self) -> SweepState:
        """The state now. Raises `RecordError` where sweep.json is damaged."""
        plan = self._read_plan()
        jobs = self._queued.look()  # first: a job that is over by now has left its run's end behind
        cells = _in_order(plan.planned if plan else (), self._runs(), self._paths)
        stored = {name: mark for name, (mark, _) in self._known.items()}
        if self._last is not None and stored != self._last:
            self._changed_at = self._observer.clock()
        self._last = stored
        return SweepState([self._with_job(cell, jobs) for cell in cells], self._is_driven(plan))

    def _with_job(self, cell: CellState, jobs: Mapping[str, str | None]) -> CellState:
        job = jobs.get(cell.paths.name, "")
        # A job that waited before its run ended says nothing of the time after it.
        is_put_back = cell.is_ended and job in WAITING_STATES and self._queued.asked_at >= self._changed_at
        return replace(cell, is_queued=None if job is None else bool(job), is_put_back=is_put_back)

    def _read_plan(self) -> SweepRecord | None:
        mark = file_stamp(self._paths.record)
        if mark != self._plan[0]:
            self._plan = (mark, read_sweep_record(self._paths))
        return self._plan[1]

    def _runs(self) -> list[CellState]:
        return [self._run(name) for name in run_names(self._paths)]

    def _run(self, name: str) -> CellState:
        known = self._known.get(name)
        try:
            mark = file_stamp(f"{self._paths.runs}/{name}/{RECORD}")
            if mark is None:
                return CellState(self._paths.run(name), None)  # Hydra makes the folder before the run claims it
            if known is None or known[0] != mark:
                paths = self._paths.run(name)
                known = self._known[name] = (mark, CellState(paths, read_record(paths, shared=self._shared)))
        except (OSError, RecordError):
            return CellState(self._paths.run(name), None, is_damaged=True)
        state = known[1]
        if state.record is None or state.record.status is not Status.RUNNING:
            return state
        return CellState(state.paths, self._observer.observed(state.paths, state.record))

    def _is_driven(self, plan: SweepRecord | None) -> bool | None:
        lives = [driver.is_alive() for driver in (plan.drivers if plan else ())]
        if True in lives:
            return True
        is_silent = self._observer.clock() - self._changed_at >= self._observer.limit_seconds
        return None if None in lives and not is_silent else False


def _in_order(planned: Sequence[PlannedCell], runs: Sequence[CellState], sweep: SweepPaths) -> list[CellState]:
    """The planned cells, each with its run wherever that lies, then runs that nobody planned."""
    by_signature = {run.record.signature: run for run in runs if run.record is not None}
    by_name = {run.paths.name: run for run in runs}
    cells = []
    for cell in planned:
        run = by_signature.get(cell.signature) or by_name.get(cell.run)
        cells.append(run or CellState(sweep.run(cell.run), None))
    shown = {cell.paths.name for cell in cells}
    others = [run for run in runs if run.paths.name not in shown]
    return cells + [run for run in others if run.is_damaged or run.record is not None]


def show_state(sweep: SweepPaths, console: Console, *, queue: SlurmQueue | None = None) -> int:
    """Print the sweep's state, with a line for each run that is running or has ended badly; return its status."""
    state = SweepReader(sweep, queue=queue).read()
    console.print(f"{sweep.root}: {state.in_words()}", markup=False, highlight=False)
    for number, cell in enumerate(state.cells, start=1):
        if cell.is_damaged:
            console.print(_damage_of(cell.paths), markup=False, soft_wrap=not console.is_terminal)
        if cell.record is None or cell.record.status.is_success:
            continue
        try:
            epochs = read_epochs(cell.paths)
        except RecordError:
            epochs = []
        pluralize = f"{number}/{len(state.cells)}"
        line = run_line(cell.paths, cell.record, epochs, counted=pluralize)
        if cell.is_running:
            line.append(f"  epoch {epochs[-1].epoch if epochs else 0}/{epochs_of(cell.record)}")
        if cell.record.is_running_elsewhere:
            line.append(f"  on another host, {describe_last_heartbeat(read_beat(cell.paths.heartbeat))}")
        console.print(line, soft_wrap=not console.is_terminal)
    return state.status


def _damage_of(paths: RunPaths) -> str:
    try:
        read_record(paths)
    except RecordError as error:
        return str(error)
    return f"{paths.record} could not be read a moment ago"


def follow_sweep(
    sweep: SweepPaths,
    console: Console,
    *,
    queue: SlurmQueue | None = None,
    observer: HeartbeatObserver | None = None,
) -> int:
    """Show the sweep's runs until every cell has ended, then its tables; return its exit status.

    Only files are read, so it serves beside the driver, after it, and without one; of cells that were handed to Slurm
    its `queue` is asked too, where there is one. Where nobody else has written their report, it is written at the end.
    `observer` tells of runs of other hosts whether they are gone, and how to wait between two looks.
    """
    observer = observer or HeartbeatObserver()
    state = follow_runs(SweepReader(sweep, observer=observer, queue=queue), console, observer=observer)
    write_missing_report(sweep, state)
    show_results(sweep, console, observer=observer)
    return state.status


def follow_runs(
    reader: SweepReader,
    console: Console,
    *,
    observer: HeartbeatObserver,
    moving_part: Callable[[Console, Callable[[], RenderableType]], MovingPart] = in_terminal,
    has_left: Callable[[], bool] | None = None,
) -> SweepState:
    """Show the runs that `reader` reads until every cell has ended; return the last state.

    Where the caller has a driver of its own, `has_left` says whether that is gone, and then nothing more is waited for.
    `moving_part` says where the runs that run are shown.
    """
    state = reader.read()
    longest = max((len(run_label(cell.paths)) for cell in state.cells), default=0)
    display = RunDisplay(console, num_runs=len(state.cells), longest_label=longest, moving_part=moving_part)
    # What moves would soon belie what was counted at the beginning, and says how many cells are in which state itself.
    counts_itself = display.moves and not state.is_ended
    display.say(f"{reader.root}: {state.size_in_words() if counts_itself else state.in_words()}")
    follower = _Follower(display)
    follower.begin(state)
    is_last = False
    with display:
        while True:
            follower.look(state)
            if is_last or (has_left is None and state.is_ended):
                return state
            follower.say_who_waits(state)
            observer.wait(LOOK_SECONDS)
            is_last = has_left is not None and has_left()  # before reading, so that what it did last is seen
            state = reader.read()


def write_missing_report(sweep: SweepPaths, state: SweepState) -> None:
    """Do what the last of Slurm's jobs would have done, had it not been killed as a whole."""
    if not sweep.slurm_jobs.exists():
        return  # its driver has done so, or will
    written = sweep.report.stat().st_mtime_ns if sweep.report.exists() else 0
    ends = [cell.paths.record.stat().st_mtime_ns for cell in state.cells if cell.record is not None]
    if max(ends, default=0) <= written:
        return
    from runmanager.results.writer import write_tables

    with contextlib.suppress(OSError):  # somebody who may only read here
        write_tables(sweep)


class _Follower:
    """Tells a display what is new in one state after another."""

    def __init__(self, display: RunDisplay) -> None:
        self._display = display
        self._running: dict[str, RunPaths] = {}
        self._ended: dict[str, RunRecord | None] = {}
        self._gone: set[str] = set()
        self._over: set[str] = set()
        self._said_whom: set[tuple[str, str]] = set()

    def begin(self, state: SweepState) -> None:
        """Show of what has ended already only what ended badly."""
        ended = [cell for cell in state.cells if cell.is_ended and not _has_just_gone(cell, state)]
        for cell in ended:
            self._ended[cell.paths.name] = cell.record
            self._display.counted(cell.paths)
        for cell in ended:
            if cell.record is None or not cell.record.status.is_success:
                self._display.ended(cell.paths, cell.record)

    def look(self, state: SweepState) -> None:
        """Show what is new."""
        self._display.count_to(len(state.cells))
        for cell in state.cells:
            name = cell.paths.name
            if cell.is_running and name not in self._running:
                assert cell.record is not None
                self._over |= {each.paths.name for each in state.cells if each.is_ended}
                self._running[name] = cell.paths
                self._ended.pop(name, None)
                seconds = measure_seconds_of(cell.record.config)
                self._display.started(cell.paths, epochs_of(cell.record), measure_seconds=seconds)
            elif (
                cell.is_ended
                and self._ended.get(name, _NOT_ENDED) != cell.record
                and not self._is_in_doubt(cell, state)
            ):
                self._running.pop(name, None)
                self._ended[name] = cell.record
                self._display.ended(cell.paths, cell.record)
        self._display.follow(list(self._running.values()))

    def _is_in_doubt(self, cell: CellState, state: SweepState) -> bool:
        """Whether its driver may be about to write how its process went, or, of runs in turns, to start it again."""
        if state.is_driven and _is_measured_in_turns(cell) and cell.paths.name not in self._over:
            return True
        if not _has_just_gone(cell, state) or cell.paths.name in self._gone:
            return False
        self._gone.add(cell.paths.name)
        return True

    def say_who_waits(self, state: SweepState) -> None:
        """Say for whom the cells wait while none runs and no driver is at work; once, until that changes."""
        is_nobody_at_it = state.is_driven is False and not self._running
        waiting = [cell for cell in state.cells if cell.is_waiting] if is_nobody_at_it else []
        whom = Counter(_WAITS_FOR[cell.is_queued] for cell in waiting)
        if whom and whom.keys() != self._said_whom:
            self._display.say(
                "; ".join(pluralize(number, *words) for words, number in whom.items()) + "; Ctrl-C leaves."
            )
        self._said_whom = set(whom)


_HANDED_OVER = "handed to Slurm, which cannot be asked from here"
_WAITS_FOR = {
    True: ("cell waits in Slurm's queue", "cells wait in Slurm's queue"),
    False: ("cell waits for a driver", "cells wait for a driver"),
    None: (f"cell was {_HANDED_OVER}", f"cells were {_HANDED_OVER}"),
}


def _is_measured_in_turns(cell: CellState) -> bool:
    record = cell.record
    return record is not None and record.status is Status.FINISHED and measure_seconds_of(record.config) > 0


def _has_just_gone(cell: CellState, state: SweepState) -> bool:
    is_attended = state.is_driven is True or cell.is_queued is True
    return cell.record is not None and cell.record.status is Status.CRASHED and is_attended
