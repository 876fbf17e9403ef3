"""The cells that another driver of the sweep has, or had: seen to live, followed to their ends, or taken over."""

import signal
from collections.abc import Callable, Collection, Sequence

from runmanager.app.display.progress import RunDisplay
from runmanager.app.follow.follower import Follower
from runmanager.app.follow.sweep_state import CellState, SweepState
from runmanager.errors import RecordError
from runmanager.launching.plan import Action, PlannedRun, is_left_undone
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.record import RunRecord
from runmanager.records.storage.ownership import end_silent, silent_runs
from runmanager.records.storage.reader import read_record
from runmanager.signals import handle_signals
from runmanager.text import pluralize

__all__ = ["end_silent_runs", "follow_elsewhere", "stored_record"]

_POLL_SECONDS = 0.2


def stored_record(run: PlannedRun) -> RunRecord | None:
    """What is stored of a cell now; None where there is nothing, or nothing that can be read."""
    try:
        return read_record(run.paths).observed()
    except RecordError:
        return None


def end_silent_runs(
    plan: Sequence[PlannedRun],
    observer: HeartbeatObserver,
    *,
    apart_from: Collection[str] = (),
    say: Callable[[str], None],
) -> bool:
    """Write the ends of the runs of other hosts that show no sign of life; whether there were any.

    A run that says `running` there is watched for as long as `observer` wants it, all of them together; one that
    lives is known within seconds. Those with a name in `apart_from` are somebody else's to judge.
    """
    unseen = {
        each.paths: each.stored.owner.host
        for each in plan
        if each.action is Action.LEAVE and each.stored is not None and each.stored.owner is not None
        if each.stored.is_out_of_sight and each.paths.name not in apart_from
    }
    if not unseen:
        return False
    runs = pluralize(len(unseen), "run says", "runs say")
    hosts = ", ".join(dict.fromkeys(unseen.values()))
    say(f"{runs} `running` on {hosts}: watched for a sign of life for up to {observer.limit_seconds:g} s.")
    ended = [end_silent(paths, observer) for paths in silent_runs(list(unseen), observer)]
    for record in filter(None, ended):
        say(f"{record.name}: {record.message}; taken over.")
    return any(ended)


def follow_elsewhere(runs: Sequence[PlannedRun], display: RunDisplay, observer: HeartbeatObserver) -> list[PlannedRun]:
    """Follow cells that another driver runs to their ends; return those that it left undone.

    One that vanished with its host is ended here. Raises `KeyboardInterrupt` if the user asks to stop.
    """
    cells = _Cells(runs, observer)

    def read() -> tuple[SweepState, bool]:
        state = cells.read()
        return state, all(cell.is_ended for cell in state.cells)

    with handle_signals([signal.SIGTERM], _interrupt):  # SIGTERM does what Ctrl-C does
        Follower(display).follow(read, wait=lambda: observer.wait(_POLL_SECONDS))
    return [run for run in runs if (record := stored_record(run)) is None or is_left_undone(record)]


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
            record = end_silent(run.paths, self._observer) or stored_record(run)
        return CellState(run.paths, record, is_damaged=record is None)


def _interrupt() -> None:
    raise KeyboardInterrupt
