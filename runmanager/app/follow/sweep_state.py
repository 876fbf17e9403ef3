"""A sweep's state read from its files: its cells in order, their runs' states, and whether a driver is at work."""

import time
from collections import Counter
from collections.abc import Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runmanager.errors import RecordError
from runmanager.launching.job_registry import QUEUE_NAME, JobQueue, read_job_registry, states_in_queue
from runmanager.records.files.atomic_files import FileStamp, file_stamp
from runmanager.records.files.paths import RECORD, RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_record, run_names
from runmanager.records.storage.versioned_file import SharedParts, gc_paused
from runmanager.records.sweep.sweep_record import PlannedCell, SweepRecord, read_sweep_record, settings_of_cells
from runmanager.text import pluralize

_QUERY_SECONDS = 5.0  # between two queries of a queue
_FRESH_NS = 2 * 10**9  # a folder that was changed since may change again within the same tick of its clock


@dataclass(frozen=True)
class CellState:
    """The state of a cell's run; `planned_name` is that of the run by the plan, if it is there.

    `record` has the observed state; None before the run has begun, and if its file cannot be read, for which `damage`
    is the reason. `is_queued`: whether a queue has a job for it; None if it was submitted and no queue answers.
    `is_requeued`: whether the job of a stopped run was put back into its queue.
    """

    paths: RunPaths
    record: RunRecord | None
    damage: str = ""
    is_queued: bool | None = False
    is_requeued: bool = False
    planned_name: str = ""

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.record.name if self.record else self.planned_name or self.paths.name

    @property
    def is_ended(self) -> bool:
        return bool(self.damage) or (self.record is not None and self.record.status.is_ended)

    @property
    def is_running(self) -> bool:
        return self.record is not None and self.record.status is Status.RUNNING

    @property
    def measure_seconds(self) -> float:
        """For how long the run may be measured side by side after its epochs; 0 without `measure=paired`."""
        measure = self.record.config.get("measure") if self.record else None
        seconds = measure.get("max_seconds") if isinstance(measure, Mapping) else None
        return float(seconds) if isinstance(seconds, int | float) else 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether the run is still to be started or resumed."""
        return self.is_requeued or not (self.is_ended or self.is_running)

    @property
    def label(self) -> str:
        """The state as printed."""
        if self.is_waiting:
            return _WAITING_LABELS[self.is_queued]
        return "damaged" if self.record is None else str(self.record.status)


_WAITING_LABELS = {True: "queued", False: str(Status.PENDING), None: f"handed to {QUEUE_NAME}"}


@dataclass(frozen=True)
class SweepState:
    """The cells in order, and whether a driver is at work; None if only another host could tell."""

    cells: Sequence[CellState]
    is_driven: bool | None

    @property
    def is_ended(self) -> bool:
        """Whether every cell has ended and none is about to be started again."""
        return self.is_driven is False and all(cell.is_ended and not cell.is_queued for cell in self.cells)

    def is_attended(self, cell: CellState) -> bool:
        """Whether a driver or a job is at work that may change what is stored of the cell's run."""
        return self.is_driven is True or cell.is_queued is True

    @property
    def status(self) -> int:
        """The sweep's exit status so far: 1 as soon as a run has ended badly."""
        ended = [cell for cell in self.cells if cell.is_ended and not cell.is_requeued]
        return int(any(cell.record is None or not cell.record.status.is_success for cell in ended))

    def in_words(self) -> str:
        """Return the number of cells in each state."""
        counts = Counter(cell.label for cell in self.cells)
        return f"{self.size_in_words()}: " + ", ".join(f"{number} {label}" for label, number in counts.items())

    def size_in_words(self) -> str:
        """Return the number of cells."""
        return pluralize(len(self.cells), "cell")


class SweepReader:
    """Reads a sweep's state repeatedly; unchanged files are not read again.

    `observer` judges runs on other hosts by their heartbeats. A driver on another host counts as gone when no record
    has changed for the same time. `queue` is queried for cells that were submitted, if it is given.
    """

    def __init__(
        self, paths: SweepPaths, *, observer: HeartbeatObserver | None = None, queue: JobQueue | None = None
    ) -> None:
        self.paths = paths
        self.observer = observer or HeartbeatObserver()
        self._queue = queue
        self._jobs: dict[str, str | None] = {}
        self._queried_at = -float("inf")
        self._plan: tuple[FileStamp | None, SweepRecord | None] = (None, None)
        self._known: dict[str, tuple[FileStamp, CellState]] = {}
        self._last_stamps: dict[str, FileStamp] | None = None
        self._listed: tuple[FileStamp | None, list[str]] = (None, [])
        self._shared = SharedParts()
        self._changed_at = self.observer.clock()

    @gc_paused()
    def read(self, runs: Collection[RunPaths] | None = None) -> SweepState:
        """Read the current state, with `runs` of these alone. Raises `RecordError` if sweep.json is damaged."""
        if runs is not None:
            return SweepState([self._named_run(run) for run in runs], None)
        plan = self._read_plan()
        jobs = self._read_jobs()  # before the runs, so that the run of a job that has ended is read with its end
        cells = _in_order(plan.kept if plan else (), [self._run(name) for name in self._run_names()], self.paths)
        stamps = {name: stamp for name, (stamp, _) in self._known.items()}
        if self._last_stamps is not None and stamps != self._last_stamps:
            self._changed_at = self.observer.clock()
        self._last_stamps = stamps
        return SweepState([self._with_job(cell, jobs) for cell in cells], self._is_driven())

    @property
    def drivers_at_work(self) -> Sequence[ProcessIdentity]:
        """The drivers that are alive, or may be on another host. Raises `RecordError` if sweep.json is damaged."""
        plan = self._read_plan()
        return plan.drivers_at_work if plan else ()

    def fingerprint(self, resting: Container[str], drivers: Iterable[ProcessIdentity]) -> Hashable:
        """Return a value that is another one if a file, or the life of a process at work, has changed.

        Runs at rest are not looked at; `drivers` are those in sweep.json. Raises `OSError`.
        """
        files = [file_stamp(path) for path in (self.paths.record, self.paths.labels, self.paths.messages)]
        going = [self._run(name) for name in self._run_names() if name not in resting]
        runs = [(run.paths.name, run.label, *_stamps(run.paths)) for run in going]
        return tuple(files), self._listed[0], tuple(runs), tuple(driver.is_alive() for driver in drivers)

    def settings_by_run(self) -> dict[str, dict[str, Any]]:
        """Return the settings of each planned cell, by the name of its run's folder."""
        plan = self._read_plan()
        return (
            {} if plan is None else dict(zip([each.run for each in plan.planned], settings_of_cells(plan), strict=True))
        )

    def _with_job(self, cell: CellState, jobs: Mapping[str, str | None]) -> CellState:
        job = jobs.get(cell.paths.name, "")
        # A job that was queued before its run ended does not count as requeued.
        is_waiting = self._queue is not None and job in self._queue.waiting
        is_requeued = cell.is_ended and is_waiting and self._queried_at >= self._changed_at
        return replace(cell, is_queued=None if job is None else bool(job), is_requeued=is_requeued)

    def _read_jobs(self) -> Mapping[str, str | None]:
        """The state of the job of each cell that was submitted, by the name of its folder; "" if it is gone.

        A state is None if the queue does not answer. Raises `RecordError` if the job registry is damaged.
        """
        now = self.observer.clock()
        if now - self._queried_at >= _QUERY_SECONDS:
            self._queried_at = now
            jobs = read_job_registry(self.paths)
            states = states_in_queue(jobs, self._queue) if jobs and self._queue else None
            self._jobs = {name: self._jobs.get(name) if states is None else states.get(name, "") for name in jobs}
        return self._jobs

    def _read_plan(self) -> SweepRecord | None:
        stamp = file_stamp(self.paths.record)
        if stamp != self._plan[0]:
            self._plan = (stamp, read_sweep_record(self.paths))
        return self._plan[1]

    def _run_names(self) -> list[str]:
        """The names of the run folders, which are listed again where their number may have changed."""
        stamp = file_stamp(self.paths.runs)
        is_fresh = stamp is not None and time.time_ns() - stamp[0] < _FRESH_NS
        if is_fresh or stamp != self._listed[0]:
            self._listed = stamp, run_names(self.paths)
        return self._listed[1]

    def _named_run(self, run: RunPaths) -> CellState:
        return CellState(run, None, damage=f"{run.root} is a link") if run.root.is_symlink() else self._run(run.name)

    def _run(self, name: str) -> CellState:
        known = self._known.get(name)
        try:
            stamp = file_stamp(f"{self.paths.runs}/{name}/{RECORD}")
            if stamp is None:
                return CellState(self.paths.run(name), None)  # Hydra creates the folder before the run claims it
            if known is None or known[0] != stamp:
                paths = self.paths.run(name)
                known = self._known[name] = (stamp, CellState(paths, read_record(paths, shared=self._shared)))
        except (OSError, RecordError) as error:
            return CellState(self.paths.run(name), None, damage=str(error))
        state = known[1]
        if state.record is None or state.record.status is not Status.RUNNING:
            return state
        return CellState(state.paths, self.observer.observed(state.paths, state.record))

    def _is_driven(self) -> bool | None:
        are_alive = [driver.is_alive() for driver in self.drivers_at_work]
        if True in are_alive:
            return True
        is_silent = self.observer.clock() - self._changed_at >= self.observer.limit_seconds
        return None if None in are_alive and not is_silent else False


def _stamps(run: RunPaths) -> list[FileStamp | int | None]:
    try:
        return [file_stamp(path) for path in (run.record, run.epochs, run.reported, run.turns)]
    except OSError as error:
        return [error.errno]


def _in_order(planned: Sequence[PlannedCell], runs: Sequence[CellState], sweep: SweepPaths) -> list[CellState]:
    """The planned cells, each with its run, then the runs that are not planned."""
    by_signature = {run.record.signature: run for run in runs if run.record is not None}
    by_name = {run.paths.name: run for run in runs}
    cells = []
    for cell in planned:
        if (run := by_signature.get(cell.signature)) is None:
            run = replace(by_name.get(cell.run) or CellState(sweep.run(cell.run), None), planned_name=cell.name)
        cells.append(run)
    shown = {cell.paths.name for cell in cells}
    others = [run for run in runs if run.paths.name not in shown]
    return cells + [run for run in others if run.damage or run.record is not None]
