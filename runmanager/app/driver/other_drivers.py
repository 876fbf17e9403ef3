"""What is stored of planned runs; those that another driver has left are taken over if it is gone."""

from collections.abc import Callable, Collection, Sequence

from runmanager.errors import RecordError
from runmanager.launching.plan import Action, PlannedRun
from runmanager.records.files.folders import refuse_linked_run
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.ownership import silent_runs
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.run_end import end_silent_run
from runmanager.text import pluralize

__all__ = ["end_silent_runs", "stored_record"]


def stored_record(run: PlannedRun) -> RunRecord | None:
    """Return the stored record of a run; None if it is missing or unreadable."""
    try:
        refuse_linked_run(run.paths)
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
