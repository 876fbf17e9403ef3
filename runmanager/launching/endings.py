"""Writing the end of a run beside which nobody is left who could."""

import datetime

from runmanager.errors import RecordError
from runmanager.launching.plan import PlannedRun
from runmanager.records.files import replace_file
from runmanager.records.run import RunRecord
from runmanager.records.states import Outcome, Status
from runmanager.records.store import encode_record, read_record

__all__ = ["write_missing_end"]


def write_missing_end(run: PlannedRun, outcome: Outcome) -> None:
    """Write the end of a run whose process is gone without having written it."""
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
        replace_file(run.paths.record, encode_record(record.ended(outcome, at=now)))
        run.paths.heartbeat.unlink(missing_ok=True)
