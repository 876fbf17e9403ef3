"""The run folder of a cell, for the program: its supervisor alone writes run.json, the program a file of its own."""

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from runmanager.errors import RecordError, UsageError
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.program_report import ProgramReport
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_record, read_report
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.storage.versioned_file import encode_record

_REPORTED = tuple(set(ProgramReport.__struct_fields__) - {"schema_version", "attempt", "outcome"})


class ReportedFolder(RunFolder):
    """The folder of a cell for the one process that reports: what belongs into the record goes to reported.json.

    `record` is the run's record as this process knows it.
    """

    is_supervised = True

    @property
    def heartbeat(self) -> Path:
        """A file that changes as the program proceeds, from which its supervisor sees that it does."""
        return self.paths.program_heartbeat

    def write(self, **changes: Any) -> RunRecord:
        """Change fields of the record and replace reported.json."""
        self.refuse_others()
        self.record = msgspec.structs.replace(self.record, **changes)
        outcome = self.record.outcome if self.record.status.is_ended else None
        known = {name: getattr(self.record, name) for name in _REPORTED}
        report = ProgramReport(attempt=self.record.attempt, outcome=outcome, **known)
        replace_file(self.paths.reported, encode_record(report))
        return self.record

    def is_lost(self) -> bool:
        """Whether the supervisor has ended the run, or another attempt has begun."""
        try:
            stored = read_record(self.paths)
        except RecordError:
            return super().is_lost()
        return stored.attempt != self.record.attempt or stored.status.is_ended

    def put_earlier_aside(self) -> Path:
        """Move what an earlier attempt recorded to attempts/<its number>/, returned: this one begins from the start."""
        earlier = self.paths.attempts / str(self.record.attempt - 1)
        paths = self.paths
        for path in (paths.checkpoint, paths.best, paths.epochs, paths.events, paths.reported, paths.turns):
            if path is not None and path.exists():
                earlier.mkdir(parents=True, exist_ok=True)
                shutil.move(path, earlier / path.name)
        return earlier

    def restart(self, record: RunRecord) -> Path:
        """Begin again from the start, though a checkpoint was there; return where the earlier files are."""
        self.refuse_others()
        self.close()
        self.continues = False
        earlier = self.put_earlier_aside()
        self.write(**{name: getattr(record, name) for name in _REPORTED})
        return earlier


def claim_report(paths: RunPaths, *, can_resume: bool) -> ReportedFolder:
    """Become the one process that reports the run of a cell; with `can_resume` it continues from a checkpoint.

    Raises `UsageError` if a process has reported this attempt, or if no run in the folder is running.
    """
    record = read_record(paths)
    if record.status is not Status.RUNNING:
        raise UsageError(
            f"RUNMANAGER_RUN must name a run that is running, got {paths.root}, which is {record.status}; "
            "unset RUNMANAGER_RUN to start a run outside of a sweep."
        )
    try:
        handle = os.open(paths.reporter(record.attempt), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        raise UsageError(
            f"The run of a cell must be started once, got a second start in process {os.getpid()} for {record.name}; "
            "start it in one process, and log everything there."
        ) from None
    os.write(handle, f"{os.getpid()}\n".encode())
    os.close(handle)
    folder = ReportedFolder(paths, msgspec.structs.replace(record, notes=(), deviations=(), summary=msgspec.UNSET))
    folder.continues = can_resume and record.attempt > 1 and paths.checkpoint.exists()
    if not folder.continues:
        folder.put_earlier_aside()
    elif (earlier := read_report(paths)) is not None:
        kept = {name: getattr(earlier, name) for name in ("interval", "summary", "notes", "deviations", "measurements")}
        folder.record = msgspec.structs.replace(folder.record, **kept)
    return folder
