"""Errors of a driver outside its runs, collected until its end; and the writing and showing of its results."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console

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


def write_and_show_results(
    sweep: SweepPaths,
    console: Console,
    faults: DriverFaults,
    *,
    quiet: bool,
    show: Callable[[SweepPaths, Console, bool], None],
) -> None:
    """Write a sweep's tables and report, and `show` its results unless `quiet`; errors are added to `faults`.

    `show` gets whether the tables were written, so that it does not announce missing files.
    """
    from runmanager.results.result_files import write_tables

    is_written = False
    with faults.kept("The tables could not be written"):
        write_tables(sweep, report=True)
        is_written = True
    if not quiet:
        with faults.kept("The results could not be shown"):
            show(sweep, console, is_written)
