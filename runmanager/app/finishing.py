"""The end of a command: what its runs came to is shown and written, and what goes wrong then is kept as a fault."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console

from runmanager.errors import RunManagerError
from runmanager.records.paths import SweepPaths

__all__ = ["Faults", "show_and_write"]


class Faults:
    """What went wrong apart from the runs, once they had begun: readable `lines`, and the first such `error`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.error: BaseException | None = None

    def add(self, what: str, error: BaseException) -> None:
        """Keep an error; the runs have begun, and what they did is not to be lost."""
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        said = first if isinstance(error, RunManagerError) else f"{type(error).__name__}: {first} (--debug shows where)"
        self.lines.append(f"{what}: {said}")
        self.error = self.error or error

    @contextlib.contextmanager
    def kept(self, what: str) -> Iterator[None]:
        """Keep an exception raised meanwhile."""
        try:
            yield
        except Exception as error:
            self.add(what, error)


def show_and_write(
    sweep: SweepPaths, console: Console, faults: Faults, *, quiet: bool, show: Callable[[SweepPaths, Console], None]
) -> None:
    """Show what a sweep came to, unless `quiet`, and write its tables with the report; no fault of it is raised."""
    from runmanager.results.write import write_tables

    if not quiet:
        with faults.kept("The results could not be shown"):
            show(sweep, console)
    with faults.kept("The tables could not be written"):
        write_tables(sweep, report=True)
