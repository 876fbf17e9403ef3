"""Writing the end of a run beside which nobody is left who could."""

import datetime

from runmanager.errors import RecordError
from runmanager.launching.plan import PlannedRun
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.run.record import RunRecord
from runmanager.records.run.status import Outcome, Status
from runmanager.records.storage.reader import last_moment, read_record
from runmanager.records.storage.versioned_file import encode_record

__all__ = ["write_missing_end"]


def write_missing_end(run: PlannedRun, outcome: Outcome) -> None:
    """Write the end of a run whose process is gone without having written it, as of its last sign of life.

    That it is gone may be noticed long afterwards, and it did not run meanwhile.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat()
    try:
        record = read_record(run.paths)
    except RecordError:
        if run.paths.record.exists():
            return  # damaged: every reader says so
        run.paths.root.mkdir(parents=True, exist_ok=True)
        record = RunRecord(
            name=run.paths.name,
            signature=run.cell.signature,
            status=Status.PENDING,
            config=dict(run.cell.config),
            started_at=now,
        )
    if not record.status.is_ended:
        at = last_moment(run.paths, record) or now
        replace_file(run.paths.record, encode_record(record.ended(outcome, at=at)))
        run.paths.heartbeat.unlink(missing_ok=True)
