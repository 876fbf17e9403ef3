"""What is to be seen of a sweep at one moment: read when it is first asked for, so that all of it agrees."""

from functools import cached_property
from typing import TYPE_CHECKING

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.record import SweepRecord
from runmanager.results.compare.comparison import CompareOptions, compare_matches
from runmanager.results.compare.comparison_table import ComparisonTable
from runmanager.results.compare.matching import Matches, match_sides
from runmanager.results.findings.crossover import Crossover, notable_crossovers
from runmanager.results.findings.paired_rounds import paired_rounds
from runmanager.results.load.loader import read_results
from runmanager.results.model.columns import Table
from runmanager.results.tables.results_table import result_rows

if TYPE_CHECKING:
    from runmanager.results.figures.figure import Drawn

__all__ = ["SweepSnapshot"]

_OPTIONS = CompareOptions()


class SweepSnapshot:
    """A sweep's runs, its tables and its figures, each made when it is first asked for and then kept.

    `observer` is one that has watched runs of other hosts, and may know that they are gone.
    """

    def __init__(self, paths: SweepPaths, *, observer: HeartbeatObserver | None = None) -> None:
        self.paths = paths
        self._observer = observer

    @cached_property
    def read(self) -> tuple[SweepContents, SweepRecord | None]:
        """What is stored of the runs, and the plan."""
        return read_results(self.paths, observer=self._observer)

    @cached_property
    def results(self) -> Table:
        """One row a run, the columns of results.csv."""
        return result_rows(*self.read)

    @cached_property
    def comparison(self) -> ComparisonTable:
        """One row a matched pair, as people read it: also along an axis that stands in for one without an answer."""
        return compare_matches(self.read[0], self._matches, _OPTIONS)

    @cached_property
    def crossovers(self) -> list[Crossover]:
        """Where along an axis one side overtakes the other."""
        return notable_crossovers(self._matches, self.comparison)

    @cached_property
    def figures(self) -> "list[Drawn]":
        """The figures that have something to show, in the order in which they answer; none is drawn yet."""
        from runmanager.results.figures.catalog import figures_of

        return figures_of(
            self.read[0],
            results=self.results,
            comparison=self.comparison,
            crossovers=self.crossovers,
            rounds=paired_rounds(self._matches),
        )

    @cached_property
    def _matches(self) -> Matches:
        return match_sides(*self.read, _OPTIONS)
