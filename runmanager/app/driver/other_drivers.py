"""The cells that another driver of the sweep has, or had: seen to live, followed to their ends, or taken over."""

import signal
from collections.abc import Callable, Collection, Sequence

from runmanager.app.display.progress import RunDisplay
from runmanager.app.display.run_line import epochs_of
from runmanager.errors import RecordError
from runmanager.launching.plan import Action, PlannedRun, was_cut_short
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.record import RunRecord
from runmanager.records.storage.ownership import silent_runs
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.run_end import end_silent_run
from runmanager.signals import handle_signals
from runmanager.text import pluralize

__all__ = ["end_silent_runs", "follow_elsewhere", "stored_record"]

_LOOK_SECONDS = 0.2


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
        if each.stored.is_running_elsewhere and each.paths.name not in apart_from
    }
    if not unseen:
        return False
    runs = pluralize(len(unseen), "run says", "runs say")
    hosts = ", ".join(dict.fromkeys(unseen.values()))
    say(f"{runs} `running` on {hosts}: watched for a sign of life for up to {observer.limit_seconds:g} s.")
    ended = [end_silent_run(paths, observer) for paths in silent_runs(list(unseen), observer)]
    for record in filter(None, ended):
        say(f"{record.name}: {record.message}; taken over.")
    return any(ended)


def follow_elsewhere(runs: Sequence[PlannedRun], display: RunDisplay, observer: HeartbeatObserver) -> list[PlannedRun]:
    """Follow cells that another driver runs to their ends; return those that it left undone.

    One that vanished with its host is ended here. Raises `KeyboardInterrupt` if the user asks to stop.
    """
    running = list(runs)
    shown: set[str] = set()
    with handle_signals([signal.SIGTERM], _interrupt):  # SIGTERM does what Ctrl-C does
        while running:
            for run in list(running):
                record = _followed(run, observer)
                if record is None or record.status.is_ended:
                    running.remove(run)
                    display.ended(run.paths)
                elif run.paths.name not in shown:
                    shown.add(run.paths.name)
                    display.started(run.paths, epochs_of(record))
            display.follow([run.paths for run in running])
            if running:
                observer.wait(_LOOK_SECONDS)
    return [run for run in runs if (record := stored_record(run)) is None or was_cut_short(record)]


def _followed(run: PlannedRun, observer: HeartbeatObserver) -> RunRecord | None:
    record = stored_record(run)
    if record is not None and observer.observed(run.paths, record).status is not record.status:
        return end_silent_run(run.paths, observer) or stored_record(run)
    return record


def _interrupt() -> None:
    raise KeyboardInterrupt
