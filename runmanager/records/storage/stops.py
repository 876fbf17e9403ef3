"""The stop of a run: a file in its folder, written when the stop is asked for, by which its end is judged."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import msgspec

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import read_bytes
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.status import Outcome, Reason, Status
from runmanager.records.storage.reader import read_report
from runmanager.signals import noting_signals

__all__ = ["ON_REQUEST", "Stop", "note_stop", "noted_stop", "stops_noted"]

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
