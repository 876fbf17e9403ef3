"""Cells that are decided late, one after the other, from what the runs of their sweep have recorded by then."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from runmanager.app.driver.program import CellGrid
from runmanager.app.driver.run_listener import Begun, SweepListener
from runmanager.app.driver.sweep_plan import named_in_sweep, write_plan
from runmanager.launching.launcher import CellJob, CellLauncher, Trait
from runmanager.launching.plan import PlannedRun
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.settings.grid import is_seed
from runmanager.records.sweep.sweep_record import PlannedCell


def late_obstacles(grid: CellGrid, launcher: CellLauncher, *, is_single: bool) -> list[str]:
    """Return why the cells of a command cannot be decided late, as the places where an option must be left out."""
    places = {
        "in a single run, which is one cell; use `runmanager sweep`": is_single,
        "in a duel, which compares two sides": bool(grid.sides),
        "where cells take turns, all of which must be known": grid.paired is not None,
        "where no driver waits, as it decides which cell is next": Trait.DETACHED in launcher.traits,
    }
    return [where for where, holds in places.items() if holds]


class LateCells(ABC):
    """Decides which cells a launcher gets next, for one sweep, which it may share with other drivers.

    All that counts is in the sweep's files. `plan` says what is to be done with the cells of a grid, and `metric` is
    the one by which cells are ranked, if the command names one.
    """

    def __init__(
        self, sweep: SweepPaths, plan: Callable[[CellGrid, SweepPaths], list[PlannedRun]], metric: str | None
    ) -> None:
        self._sweep = sweep
        self._plan = plan
        self._metric = metric

    @abstractmethod
    def in_words(self, launcher: CellLauncher) -> list[str]:
        """What is to be done, for the first lines."""

    @abstractmethod
    def expected(self) -> list[str]:
        """The labels of as many cells as may run, where it is known how many; they stand for their lengths."""

    @abstractmethod
    def _next(self, listener: SweepListener) -> Sequence[PlannedRun]:
        """Plan the next runs; none where that needs an end of those that are out, or nothing more is to run."""

    def unwanted(self, begun: Begun, say: Callable[[str], None]) -> Iterable[tuple[int, bool]]:
        """Return the keys of runs that are to end early, and whether at once."""
        return ()

    def jobs(
        self,
        listener: SweepListener,
        launcher: CellLauncher,
        jobs_of: Callable[[Sequence[PlannedRun], int], Iterable[CellJob]],
    ) -> Iterator[CellJob | None]:
        """Yield a job whenever fewer than the launcher's number are out and one is known, else None while any are."""
        queue, out, most = deque[CellJob](), list[int](), launcher.num_handed
        asked_with: list[int] | None = None  # what was out when there was nothing more
        while True:
            out = [key for key in out if not listener.is_over(key)]
            if queue and len(out) < most:
                out.append(queue[0].key)
                yield queue.popleft()
            elif not queue and len(out) < most and out != asked_with:
                if runs := self._next(listener):
                    queue += jobs_of(*listener.add(runs))
                else:
                    asked_with = list(out)
            elif out:
                if Trait.IN_BATCHES in launcher.traits:
                    out = []  # when it asks again, all have ended
                yield None
            else:
                return

    def _planned(self, grid: CellGrid, *, search: str | None = None) -> list[PlannedRun]:
        """Plan cells, and write those that are new into the sweep's file, with the method of a `search`."""
        grid = named_in_sweep(grid, self._sweep)
        plan = self._plan(grid, self._sweep)
        driver = ProcessIdentity.current()
        return write_plan(self._sweep, plan, grid, driver, metric=self._metric, search=search)[0]


def seeds_of(cell: PlannedCell, names: Sequence[str]) -> set[str]:
    """Return the settings of a cell that are seeds, by the usual names and by these globs."""
    return {name for name in cell.settings if is_seed(name, names)}
