"""Writing the end of a run into run.json: the only place that does it.

==================================  ==================================================
writer                              function
==================================  ==================================================
the run's own process               `end_own_run`; `skipped_record` if it cannot begin
the driver that started the process `find_end`, then `write_end`
a supervisor that comes later       `end_gone_run`
a driver on another host            `end_silent_run`
==================================  ==================================================
"""

import contextlib
import datetime
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from runmanager.errors import RecordError, RunBusyError
from runmanager.records.files.atomic_files import make_folder, read_bytes, replace_file
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.files.paths import RunPaths, refuse_linked_run
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.run.program_report import ProgramReport
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Outcome, Reason, Seen, Status, judge, seen_from_outside
from runmanager.records.storage.ownership import claim_next_attempt
from runmanager.records.storage.reader import (
    read_epochs,
    read_last_sign_of_life,
    read_record,
    read_report,
    with_known_report,
)
from runmanager.records.storage.run_folder import RunFolder, release_claim
from runmanager.records.storage.versioned_file import encode_record
from runmanager.signals import noting_signals

ON_REQUEST = Outcome(Status.KILLED, Reason.INTERRUPTED, "stopped on request")
"""The outcome of a run that a user or its driver has asked to stop."""


class Stop(msgspec.Struct, frozen=True):
    """A stop that was asked for, with its `outcome`; `is_after_end`: the program had recorded the run's end before."""

    outcome: Outcome
    is_after_end: bool = False


def note_stop(paths: RunPaths, attempt: int, outcome: Outcome = ON_REQUEST) -> None:
    """Note that this attempt of a run is asked to stop. The first stop counts. Never raises: the disk may be full."""
    try:
        report = read_report(paths)
    except RecordError:
        report = None
    has_ended = report is not None and report.attempt == attempt and report.outcome is not None
    with contextlib.suppress(OSError):
        handle = os.open(paths.stop(attempt), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(handle, msgspec.json.encode(Stop(outcome, has_ended)))
        os.close(handle)


def noted_stop(paths: RunPaths, attempt: int) -> Stop | None:
    """Return the stop of this attempt; None if none was asked for."""
    try:
        return msgspec.json.decode(read_bytes(paths.stop(attempt)), type=Stop)
    except FileNotFoundError:
        return None
    except UNREADABLE:
        return Stop(ON_REQUEST)  # a full disk


@contextlib.contextmanager
def stops_noted(paths: RunPaths, attempt: Callable[[], int | None]) -> Iterator[None]:
    """Note each SIGTERM and Ctrl-C of this process as a stop of the run, whatever its program does with the signal.

    `attempt` returns None as long as the run has not begun.
    """

    def note() -> None:
        if (number := attempt()) is not None:
            note_stop(paths, number)

    with noting_signals((signal.SIGTERM, signal.SIGINT), note):
        yield


def end_own_run(folder: RunFolder, outcome: Outcome, **facts: Any) -> RunRecord:
    """Write the end of a run from its own process, as of now, together with other fields of its record.

    Raises `OSError` if the record cannot be written, and `UsageError` in a process that does not own the folder.
    """
    return folder.write(status=outcome.status, reason=outcome.reason, message=outcome.message, ended_at=_now(), **facts)


def skipped_record(record: RunRecord, message: str) -> RunRecord:
    """Return the record of a run whose device this host lacks: it ends when it starts."""
    return record.ended(Outcome(Status.SKIPPED, Reason.DEVICE_UNAVAILABLE, message), at=record.started_at)


@dataclass(frozen=True)
class RunEnd:
    """How a run ended whose process has exited.

    `is_recorded`: run.json has this outcome already. `to_write` is the record with this end, which the driver must
    write; None if it must not write any.
    """

    outcome: Outcome
    is_recorded: bool = False
    to_write: RunRecord | None = None


def find_end(paths: RunPaths, pid: int, outcome: Outcome, *, pending: RunRecord, has_returned: bool) -> RunEnd:
    """Compare how the process `pid` exited (`outcome`) with what is stored of its run. Writes nothing.

    Where the process has not recorded the end, both are judged together.
    `pending` is the record to use if none is stored. `has_returned`: the process returned without an error, for example
    because another process had ended the run before. Nothing is to be written if the process died before it could claim
    a folder that has ended or that belongs to another living process.
    """
    try:
        refuse_linked_run(paths)
        record = read_record(paths)
        owner = record.owner
        is_own = owner is None or owner.pid == pid
    except RecordError:
        if paths.holds_run:
            return RunEnd(outcome)  # damaged: every reader reports it
        record, owner, is_own = pending, None, True
    if record.status.is_ended and (is_own or has_returned):
        return RunEnd(record.outcome, is_recorded=True)
    is_abandoned = not record.status.is_ended and owner is not None and owner.is_alive() is False
    if not (is_own or is_abandoned):
        return RunEnd(outcome)
    ended = _judged(paths, record, outcome, at=_now())
    return RunEnd(ended.outcome, to_write=ended)


def write_end(paths: RunPaths, record: RunRecord, *, traceback: str | None = None) -> None:
    """Write a record with its end in it, then error.txt, for a run whose process has exited. Raises `OSError`."""
    make_folder(paths.root)
    _replace_record(paths, record)
    if traceback is not None:
        replace_file(paths.error, traceback)


def end_gone_run(paths: RunPaths, outcome: Outcome, *, pending: RunRecord) -> None:
    """Write the end of a run whose process is gone without having written it, as of its last sign of life.

    It may be noticed long afterwards that the process is gone. `pending` is the record to use if none is stored. A
    stored end and a damaged record stay as they are. Raises `OSError`.
    """
    try:
        refuse_linked_run(paths)
        record = read_record(paths)
    except RecordError:
        if paths.holds_run:
            return  # damaged: every reader reports it
        make_folder(paths.root)
        record = pending
    if not record.status.is_ended:
        at = read_last_sign_of_life(paths, record) or _now()
        _replace_record(paths, _judged(paths, record, outcome, at=at))


def seen_in(
    paths: RunPaths, record: RunRecord, seen: Seen, report: ProgramReport | None, epochs: Sequence[EpochRecord]
) -> Seen:
    """Add what is stored of a run's end: a stop that was asked for, and what its program has reported of it.

    Of two stops the first one counts.
    """
    noted = noted_stop(paths, record.attempt)
    is_same = noted is not None and seen.stop is not None and noted.outcome.reason is seen.stop.reason
    stop = seen.stop if noted is None or is_same else noted.outcome
    if report is None or report.attempt != record.attempt:
        return replace(seen, stop=stop)
    planned = report.epochs_planned
    return replace(
        seen,
        stop=stop,
        own_end=report.outcome,
        own_end_is_first=report.outcome is not None and (noted is None or noted.is_after_end),
        is_complete=planned is not None and bool(epochs) and epochs[-1].epoch >= planned,
    )


def _judged(paths: RunPaths, record: RunRecord, outcome: Outcome, *, at: str | None) -> RunRecord:
    """The record with the end of a run whose process is gone: by how that ended, and by what is stored."""
    try:
        report, epochs = read_report(paths), read_epochs(paths)
    except RecordError:  # every reader reports it
        report, epochs = None, []
    outcome = judge(seen_in(paths, record, seen_from_outside(outcome), report, epochs))
    ended = with_known_report(paths, record).ended(outcome, at=at)
    return msgspec.structs.replace(ended, num_records=len(epochs)) if outcome.status is Status.FINISHED else ended


def end_silent_run(paths: RunPaths, observer: HeartbeatObserver) -> RunRecord | None:
    """Write the end of a run on another host that `observer` considers gone, so that it can be resumed.

    Done under a claim, so that a run that another process begins at the same time is not declared dead. Returns the
    record; None if the run is not gone, or belongs to another process.
    """
    try:
        stored = read_record(paths)
        gone = observer.observed(paths, stored)
        if not stored.is_running_elsewhere or gone.status is not Status.CRASHED:
            return None
        claim = claim_next_attempt(paths, stored, ProcessIdentity.current(), observer)
    except (RecordError, RunBusyError):
        return None
    try:
        if read_record(paths) != stored:
            return None
        gone = with_known_report(paths, stored).ended(gone.outcome, at=read_last_sign_of_life(paths, stored))
        _replace_record(paths, gone)
        return gone
    finally:
        release_claim(claim)


def _replace_record(paths: RunPaths, record: RunRecord) -> None:
    """Replace run.json, then remove the heartbeat: the record no longer says `running`."""
    replace_file(paths.record, encode_record(record))
    paths.heartbeat.unlink(missing_ok=True)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()
