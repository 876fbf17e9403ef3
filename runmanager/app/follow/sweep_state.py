"""A sweep's state read from its files: its cells in order, their runs' states, and whether a driver is at work."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runmanager.app.follow.slurm_state import SlurmCells
from runmanager.errors import RecordError
from runmanager.launching.slurm.queue import WAITING_STATES, SlurmQueue
from runmanager.records.files.atomic_files import FileStamp, file_stamp
from runmanager.records.files.paths import RECORD, RunPaths, SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.bulk_reading import SharedParts, gc_paused
from runmanager.records.storage.reader import read_record, run_names
from runmanager.records.sweep.sweep_record import PlannedCell, SweepRecord, read_sweep_record, settings_of_cells
from runmanager.text import pluralize

__all__ = ["CellState", "SweepReader", "SweepState"]


@dataclass(frozen=True)
class CellState:
    """The state of a cell's run; `planned_name` is that of the run by the plan, if it is there.

    `record` has the observed state; None before the run has begun, and if its file is damaged. `is_queued`: whether
    Slurm has a job for it; None if it was submitted and Slurm does not answer. `is_requeued`: whether Slurm has put the
    job of a stopped run back into its queue.
    """

    paths: RunPaths
    record: RunRecord | None
    is_damaged: bool = False
    is_queued: bool | None = False
    is_requeued: bool = False
    planned_name: str = ""

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.record.name if self.record else self.planned_name or self.paths.name

    @property
    def is_ended(self) -> bool:
        return self.is_damaged or (self.record is not None and self.record.status.is_ended)

    @property
    def is_running(self) -> bool:
        return self.record is not None and self.record.status is Status.RUNNING

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


_WAITING_LABELS = {True: "queued", False: str(Status.PENDING), None: "handed to Slurm"}


@dataclass(frozen=True)
class SweepState:
    """The cells in order, and whether a driver is at work; None if only another host could tell."""

    cells: Sequence[CellState]
    is_driven: bool | None

    @property
    def is_ended(self) -> bool:
        """Whether every cell has ended and none is about to be started again."""
        return self.is_driven is False and all(cell.is_ended and not cell.is_queued for cell in self.cells)

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
    has changed for the same time. `queue` is queried for cells that were submitted to Slurm, if it is given.
    """

    def __init__(
        self, paths: SweepPaths, *, observer: HeartbeatObserver | None = None, queue: SlurmQueue | None = None
    ) -> None:
        self.root = paths.root
        self._paths = paths
        self._observer = observer or HeartbeatObserver()
        self._slurm = SlurmCells(paths, queue, clock=self._observer.clock)
        self._plan: tuple[FileStamp | None, SweepRecord | None] = (None, None)
        self._known: dict[str, tuple[FileStamp, CellState]] = {}
        self._last_stamps: dict[str, FileStamp] | None = None
        self._shared = SharedParts()
        self._changed_at = self._observer.clock()

    @gc_paused()
    def read(self) -> SweepState:
        """Read the current state. Raises `RecordError` if sweep.json is damaged."""
        plan = self._read_plan()
        jobs = self._slurm.read()  # before the runs, so that the run of a job that has ended is read with its end
        cells = _in_order(plan.kept if plan else (), self._runs(), self._paths)
        stamps = {name: stamp for name, (stamp, _) in self._known.items()}
        if self._last_stamps is not None and stamps != self._last_stamps:
            self._changed_at = self._observer.clock()
        self._last_stamps = stamps
        return SweepState([self._with_job(cell, jobs) for cell in cells], self._is_driven(plan))

    def settings_by_run(self) -> dict[str, dict[str, Any]]:
        """Return the settings of each planned cell, by the name of its run's folder."""
        plan = self._read_plan()
        return (
            {} if plan is None else dict(zip([each.run for each in plan.planned], settings_of_cells(plan), strict=True))
        )

    def _with_job(self, cell: CellState, jobs: Mapping[str, str | None]) -> CellState:
        job = jobs.get(cell.paths.name, "")
        # A job that was queued before its run ended does not count as requeued.
        is_requeued = cell.is_ended and job in WAITING_STATES and self._slurm.queried_at >= self._changed_at
        return replace(cell, is_queued=None if job is None else bool(job), is_requeued=is_requeued)

    def _read_plan(self) -> SweepRecord | None:
        stamp = file_stamp(self._paths.record)
        if stamp != self._plan[0]:
            self._plan = (stamp, read_sweep_record(self._paths))
        return self._plan[1]

    def _runs(self) -> list[CellState]:
        return [self._run(name) for name in run_names(self._paths)]

    def _run(self, name: str) -> CellState:
        known = self._known.get(name)
        try:
            stamp = file_stamp(f"{self._paths.runs}/{name}/{RECORD}")
            if stamp is None:
                return CellState(self._paths.run(name), None)  # Hydra creates the folder before the run claims it
            if known is None or known[0] != stamp:
                paths = self._paths.run(name)
                known = self._known[name] = (stamp, CellState(paths, read_record(paths, shared=self._shared)))
        except (OSError, RecordError):
            return CellState(self._paths.run(name), None, is_damaged=True)
        state = known[1]
        if state.record is None or state.record.status is not Status.RUNNING:
            return state
        return CellState(state.paths, self._observer.observed(state.paths, state.record))

    def _is_driven(self, plan: SweepRecord | None) -> bool | None:
        are_alive = [driver.is_alive() for driver in (plan.drivers if plan else ())]
        if True in are_alive:
            return True
        is_silent = self._observer.clock() - self._changed_at >= self._observer.limit_seconds
        return None if None in are_alive and not is_silent else False


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
    return cells + [run for run in others if run.is_damaged or run.record is not None]
