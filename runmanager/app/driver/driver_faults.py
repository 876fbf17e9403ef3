"""Errors of a driver outside its runs, collected until its end; and the writing and showing of its results."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console

from runmanager.app.display.final_summary import show_results
from runmanager.app.display.progress import ShownMetric
from runmanager.errors import RunManagerError, SweepError, UsageError
from runmanager.records.files.file_errors import require_current_folder
from runmanager.records.files.paths import FolderIdentity, SweepPaths


def require_sweep_folder(sweep: SweepPaths, folder: FolderIdentity) -> None:
    """Raise `SweepError` if a sweep's folder was moved or deleted, so that results of its runs are lost."""
    if loss := folder.loss:
        raise SweepError(
            f"The folder {sweep.root} must stay in its place while its runs run, got {loss}; all runs end. Repeat "
            "the command to run what is lost."
        )


class DriverFaults:
    """Errors outside the runs, after these have begun: messages in `lines`, and the first `error`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.error: BaseException | None = None

    def add(self, what: str, error: BaseException) -> None:
        """Add an error with `what` failed; the message of a `SweepError` is complete without it."""
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        message = (
            first if isinstance(error, RunManagerError) else f"{type(error).__name__}: {first} (--debug shows where)"
        )
        line = message if isinstance(error, SweepError) else f"{what}: {message}"
        try:
            require_current_folder()
        except UsageError as missing:  # the cause of them all
            line = str(missing)
        if line not in self.lines:
            self.lines.append(line)
        self.error = self.error or error

    @contextlib.contextmanager
    def kept(self, what: str) -> Iterator[None]:
        """Collect an exception raised in the context."""
        try:
            yield
        except Exception as error:
            self.add(what, error)


@dataclass(frozen=True)
class Telling:
    """How a driver tells of its runs: where, with which metric first, and what it says at the end.

    `show` prints the results; it gets whether the tables were written, so that it does not announce missing files.
    `resuming` is the command that resumes the sweep, empty where none does.
    """

    console: Console
    quiet: bool = False
    metric: ShownMetric = field(default_factory=ShownMetric)
    show: Callable[[SweepPaths, Console, bool], None] = show_results
    resuming: Sequence[str] = ()


def write_and_show_results(sweep: SweepPaths, telling: Telling, faults: DriverFaults) -> None:
    """Write a sweep's tables and report, and show its results unless `quiet`; errors are added to `faults`."""
    from runmanager.results.result_files import write_tables

    is_written = False
    with faults.kept("The tables could not be written"):
        write_tables(sweep, report=True)
        is_written = True
    if not telling.quiet:
        with faults.kept("The results could not be shown"):
            telling.show(sweep, telling.console, is_written)
