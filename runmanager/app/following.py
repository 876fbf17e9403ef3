"""Following a sweep from its files alone: its cells as they stand, and their progress until the last has ended."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from runmanager.app.progress import RunDisplay, run_line
from runmanager.app.summary import show_results
from runmanager.errors import RecordError
from runmanager.records.heartbeat import HeartbeatObserver, last_heard, read_beat
from runmanager.records.paths import RunPaths, SweepPaths
from runmanager.records.run import RunRecord
from runmanager.records.states import Status
from runmanager.records.store import read_epochs, read_record, run_folders
from runmanager.records.sweep import PlannedCell, SweepRecord, read_sweep_record

__all__ = ["CellState", "SweepReader", "SweepState", "epochs_of", "follow_sweep", "show_state"]

LOOK_SECONDS = 0.5
_NOT_ENDED = object()


@dataclass(frozen=True)
class CellState:
    """A cell's run: its record, states made true; None before it has begun, and where its file is damaged."""

    paths: RunPaths
    record: RunRecord | None
    is_damaged: bool = False

    @property
    def is_ended(self) -> bool:
        return self.is_damaged or (self.record is not None and self.record.status.is_ended)

    @property
    def is_running(self) -> bool:
        return self.record is not None and self.record.status is Status.RUNNING

    @property
    def word(self) -> str:
        return "damaged" if self.is_damaged else str(self.record.status if self.record else Status.PENDING)


@dataclass(frozen=True)
class SweepState:
    """The cells in order, and whether a driver is at them: None where only its own host could tell."""

    cells: Sequence[CellState]
    is_driven: bool | None

    @property
    def is_ended(self) -> bool:
        """Whether every cell has ended and nobody is about to begin one again."""
        return self.is_driven is False and all(cell.is_ended for cell in self.cells)

    @property
    def status(self) -> int:
        """The sweep's exit status as far as it is known: 1 as soon as a run has ended badly."""
        ended = [cell for cell in self.cells if cell.is_ended]
        return int(any(cell.record is None or not cell.record.status.is_success for cell in ended))

    def in_words(self) -> str:
        """How many cells are in which state."""
        counts = Counter(cell.word for cell in self.cells)
        return f"{len(self.cells)} cells: " + ", ".join(f"{number} {word}" for word, number in counts.items())


class SweepReader:
    """Reads a sweep's state again and again; files that did not change are not read again.

    What is on another host is judged by `observer`: a run by its heartbeat, and a driver is taken to be gone when it
    has let no record change for the same time.
    """

    def __init__(self, paths: SweepPaths, *, observer: HeartbeatObserver | None = None) -> None:
        self._paths = paths
        self._observer = observer or HeartbeatObserver()
        self._known: dict[str, tuple[tuple[int, int], CellState]] = {}
        self._last: dict[str, tuple[int, int]] = {}
        self._changed_at = self._observer.clock()

    def read(self) -> SweepState:
        """The state now. Raises `RecordError` where sweep.json is damaged."""
        plan = read_sweep_record(self._paths)
        cells = _in_order(plan.planned if plan else (), self._runs(), self._paths)
        stored = {name: mark for name, (mark, _) in self._known.items()}
        if stored != self._last:
            self._last, self._changed_at = stored, self._observer.clock()
        return SweepState(cells, self._is_driven(plan))

    def _runs(self) -> list[CellState]:
        return [self._run(RunPaths(folder)) for folder in run_folders(self._paths)]

    def _run(self, paths: RunPaths) -> CellState:
        try:
            stat = paths.record.stat()
            mark = (stat.st_mtime_ns, stat.st_ino)
            known = self._known.get(paths.name)
            if known is None or known[0] != mark:
                known = (mark, CellState(paths, read_record(paths)))
                self._known[paths.name] = known
        except FileNotFoundError:
            return CellState(paths, None)  # Hydra makes the folder before the run claims it
        except RecordError:
            return CellState(paths, None, is_damaged=True)
        record = known[1].record
        return CellState(paths, self._observer.observed(paths, record) if record else None)

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


def show_state(sweep: SweepPaths, console: Console) -> int:
    """Print the sweep's state, with a line for each run that is running or has ended badly; return its status."""
    state = SweepReader(sweep).read()
    console.print(f"{sweep.root}: {state.in_words()}", markup=False, highlight=False)
    for number, cell in enumerate(state.cells, start=1):
        if cell.record is None or cell.record.status.is_success:
            continue
        try:
            epochs = read_epochs(cell.paths)
        except RecordError:
            epochs = []
        counted = f"{number}/{len(state.cells)}"
        line = run_line(cell.paths, cell.record, epochs, counted=counted)
        if cell.is_running:
            line.append(f"  epoch {epochs[-1].epoch if epochs else 0}/{epochs_of(cell.record)}")
        if cell.record.is_out_of_sight:
            line.append(f"  on another host, {last_heard(read_beat(cell.paths.heartbeat))}")
        console.print(line, soft_wrap=not console.is_terminal)
    return state.status


def follow_sweep(sweep: SweepPaths, console: Console, *, observer: HeartbeatObserver | None = None) -> int:
    """Show the sweep's runs until every cell has ended, then its tables; return its exit status.

    Only files are read, so it serves beside the driver, after it, and without one. `observer` tells of runs of other
    hosts whether they are gone, and how to wait between two looks.
    """
    observer = observer or HeartbeatObserver()
    reader = SweepReader(sweep, observer=observer)
    state = reader.read()
    display = RunDisplay(console, num_runs=len(state.cells))
    display.say(f"{sweep.root}: {state.in_words()}")
    follower = _Follower(display)
    follower.begin(state)
    with display:
        while True:
            follower.look(state)
            if state.is_ended:
                break
            observer.wait(LOOK_SECONDS)
            state = reader.read()
    show_results(sweep, console, observer=observer)
    return state.status


class _Follower:
    """Tells a display what is new in one state after another."""

    def __init__(self, display: RunDisplay) -> None:
        self._display = display
        self._running: dict[str, RunPaths] = {}
        self._ended: dict[str, RunRecord | None] = {}
        self._gone: set[str] = set()
        self._has_said_that_nobody_runs = False

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
        self._display.count_to(len(state.cells))
        for cell in state.cells:
            name = cell.paths.name
            if cell.is_running and name not in self._running:
                assert cell.record is not None
                self._running[name] = cell.paths
                self._ended.pop(name, None)
                self._display.started(cell.paths, epochs_of(cell.record))
            elif (
                cell.is_ended
                and self._ended.get(name, _NOT_ENDED) != cell.record
                and not self._is_in_doubt(cell, state)
            ):
                self._running.pop(name, None)
                self._ended[name] = cell.record
                self._display.ended(cell.paths, cell.record)
        self._display.follow(list(self._running.values()))
        self._say_if_nobody_runs(state)

    def _is_in_doubt(self, cell: CellState, state: SweepState) -> bool:
        """Whether a run's process has just gone, and its driver may be about to write how."""
        if not _has_just_gone(cell, state) or cell.paths.name in self._gone:
            return False
        self._gone.add(cell.paths.name)
        return True

    def _say_if_nobody_runs(self, state: SweepState) -> None:
        pending = sum(not cell.is_ended for cell in state.cells)
        if state.is_driven is False and pending and not self._running:
            if not self._has_said_that_nobody_runs:
                self._display.say(f"{pending} cells wait for somebody to run them; Ctrl-C leaves.")
            self._has_said_that_nobody_runs = True
        else:
            self._has_said_that_nobody_runs = False


def _has_just_gone(cell: CellState, state: SweepState) -> bool:
    return cell.record is not None and cell.record.status is Status.CRASHED and state.is_driven is True


def epochs_of(record: RunRecord) -> int:
    """How many epochs the run is to have, 0 where it does not say."""
    if record.epochs_planned is not None:
        return record.epochs_planned
    asked = record.config.get("epochs")
    return asked if isinstance(asked, int) else 0
