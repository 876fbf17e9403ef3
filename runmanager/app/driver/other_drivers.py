"""Cells that another driver of the sweep runs: followed until they end, or taken over if it is gone."""

from collections.abc import Callable, Collection, Sequence

from runmanager.app.display.progress import RunDisplay
from runmanager.app.follow.sweep_follower import Follower
from runmanager.app.follow.sweep_state import CellState, SweepState
from runmanager.launching.plan import Action, PlannedRun, stored_record, was_cut_short
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.storage.ownership import silent_runs
from runmanager.records.storage.run_end import end_silent_run
from runmanager.text import pluralize

__all__ = ["end_silent_runs", "follow_other_drivers"]

_POLL_SECONDS = 0.2


def end_silent_runs(
    plan: Sequence[PlannedRun],
    observer: HeartbeatObserver,
    *,
    apart_from: Collection[str] = (),
    say: Callable[[str], None],
) -> bool:
    """Record the end of runs on other hosts that have no heartbeat; return whether there were any.

    All runs with the state `running` there are observed together, for as long as `observer` needs; a living one is
    recognised within seconds. Runs with a name in `apart_from` are left out.
    """
    host_of = {
        each.paths: each.stored.owner.host
        for each in plan
        if each.action is Action.LEAVE and each.stored is not None and each.stored.owner is not None
        if each.stored.is_running_elsewhere and each.paths.name not in apart_from
    }
    if not host_of:
        return False
    runs = pluralize(len(host_of), "run says", "runs say")
    hosts = ", ".join(dict.fromkeys(host_of.values()))
    say(f"{runs} `running` on {hosts}: watched for a sign of life for up to {observer.limit_seconds:g} s.")
    ended = [end_silent_run(paths, observer) for paths in silent_runs(list(host_of), observer)]
    for record in filter(None, ended):
        say(f"{record.name}: {record.message}; taken over.")
    return any(ended)


def follow_other_drivers(
    runs: Sequence[PlannedRun], display: RunDisplay, observer: HeartbeatObserver
) -> list[PlannedRun]:
    """Follow cells that another driver runs until they end; return those that it left undone.

    The end of a run that vanished with its host is recorded here.
    """
    cells = _Cells(runs, observer)

    def read() -> tuple[SweepState, bool]:
        state = cells.read()
        return state, all(cell.is_ended for cell in state.cells)

    Follower(display).follow(read, wait=lambda: observer.wait(_POLL_SECONDS))
    return [run for run in runs if (record := stored_record(run)) is None or was_cut_short(record)]


class _Cells:
    """Reads the state of cells that other drivers run; a cell that has ended is not read again."""

    def __init__(self, runs: Sequence[PlannedRun], observer: HeartbeatObserver) -> None:
        self._runs = runs
        self._observer = observer
        self._ended: dict[int, CellState] = {}

    def read(self) -> SweepState:
        cells = [self._ended.get(index) or self._read(run) for index, run in enumerate(self._runs)]
        self._ended = {index: cell for index, cell in enumerate(cells) if cell.is_ended}
        return SweepState(cells, is_driven=None)

    def _read(self, run: PlannedRun) -> CellState:
        record = stored_record(run)
        if record is not None and self._observer.observed(run.paths, record).status is not record.status:
            record = end_silent_run(run.paths, self._observer) or stored_record(run)
        return CellState(run.paths, record, is_damaged=record is None)
