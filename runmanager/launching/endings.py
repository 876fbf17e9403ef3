"""What a process's end makes of a run that could not write its own, and writing it down."""

import datetime
import signal

from hydra.core.utils import JobStatus

from runmanager.errors import RecordError
from runmanager.launching.child import Raised, Returned
from runmanager.launching.engine import Ending
from runmanager.launching.plan import PlannedRun
from runmanager.records.files import replace_file
from runmanager.records.run import RunRecord
from runmanager.records.states import Outcome, Reason, Status
from runmanager.records.store import encode_record, read_record

__all__ = ["outcome_of_ending", "outcome_of_signal", "write_missing_end"]


def outcome_of_ending(ending: Ending) -> Outcome:
    """What a process's end makes of a run that could not write its own."""
    if ending.verdict is not None:
        return ending.verdict
    if ending.was_stopped:
        return Outcome(Status.KILLED, Reason.INTERRUPTED, "stopped at once")
    match ending.answer:
        case Raised(message=message) | Returned(value=(JobStatus.FAILED, str(message))):
            return Outcome(Status.FAILED, Reason.EXCEPTION, (message.splitlines() or [""])[0])
    if ending.exit_code < 0:
        return outcome_of_signal(-ending.exit_code)
    return Outcome(Status.FAILED, Reason.EXIT, f"the process ended with exit code {ending.exit_code}")


def outcome_of_signal(number: int) -> Outcome:
    """A run whose process was killed by a signal."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return Outcome(Status.KILLED, Reason.SIGNAL, name)


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
