"""The end of a command: what its runs came to is shown and written, and what goes wrong then is kept as a fault."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console

from runmanager.errors import RunManagerError, SweepError
from runmanager.records.files.folder_identity import FolderIdentity
from runmanager.records.files.paths import SweepPaths

__all__ = ["DriverFaults", "require_sweep_folder", "write_and_show_results"]


def require_sweep_folder(sweep: SweepPaths, folder: FolderIdentity) -> None:
    """Raises `SweepError` where a sweep's folder is not there any more: what its runs do is lost."""
    if fate := folder.fate:
        raise SweepError(
            f"The folder {sweep.root} must stay in its place while its runs run, got {fate}; no run goes on. Give the "
            "command again to run what is lost."
        )


class DriverFaults:
    """What went wrong apart from the runs, once they had begun: readable `lines`, and the first such `error`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.error: BaseException | None = None

    def add(self, what: str, error: BaseException) -> None:
        """Keep an error; the runs have begun, and what they did is not to be lost. A `SweepError` says itself what."""
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        said = first if isinstance(error, RunManagerError) else f"{type(error).__name__}: {first} (--debug shows where)"
        line = said if isinstance(error, SweepError) else f"{what}: {said}"
        if line not in self.lines:
            self.lines.append(line)
        self.error = self.error or error

    @contextlib.contextmanager
    def kept(self, what: str) -> Iterator[None]:
        """Keep an exception raised meanwhile."""
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
    """Write a sweep's tables with the report, and `show` what it came to, unless `quiet`; no fault of it is raised.

    `show` is told whether the tables are written: what is not there is not to be announced.
    """
    from runmanager.results.writer import write_tables

    is_written = False
    with faults.kept("The tables could not be written"):
        write_tables(sweep, report=True)
        is_written = True
    if not quiet:
        with faults.kept("The results could not be shown"):
            show(sweep, console, is_written)
