"""A sweep's folder, read once for all of its tables."""

from runmanager.errors import RecordError
from runmanager.records.heartbeat import HeartbeatObserver
from runmanager.records.paths import SweepPaths
from runmanager.records.store import Damage, SweepContents, read_sweep
from runmanager.records.sweep import SweepRecord, read_sweep_record

__all__ = ["read_results"]


def read_results(
    paths: SweepPaths, *, observer: HeartbeatObserver | None = None
) -> tuple[SweepContents, SweepRecord | None]:
    """What is stored of the runs, and the plan; a plan that cannot be read is reported as damage like a run's.

    `observer` is one that has watched runs of other hosts, and may know that they are gone.
    """
    sweep = read_sweep(paths, observer=observer)
    try:
        return sweep, read_sweep_record(paths)
    except RecordError as error:
        damage = Damage(paths.record, str(error))
        return SweepContents(sweep.paths, sweep.runs, (*sweep.damaged, damage)), None
