"""One reading of a sweep and everything computed from it, so that all tables and figures agree."""

import copy
import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.heartbeat import HeartbeatObserver
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.comparison import compare, compare_matches
from runmanager.results.compare.comparison_table import CompareOptions, ComparisonTable
from runmanager.results.compare.matched_pairs import Matches, match_sides
from runmanager.results.compare.sweep_question import with_metric_of_sweep
from runmanager.results.figures.catalog import Rounds, paired_rounds
from runmanager.results.findings.crossover import Crossover, crossovers, notable_crossovers, skipped_crossover_notes
from runmanager.results.load.loader import read_results
from runmanager.results.metrics.metric import BATCH_SIZE, inference_names
from runmanager.results.table_model.columns import Table
from runmanager.results.tables.results_table import epoch_rows, result_rows

if TYPE_CHECKING:
    from runmanager.results.figures.figure import SweepFigure

    pass


class SweepSnapshot:
    """The runs of a sweep at one moment, with its tables and figures; each is computed on first access and cached.

    `options` are those of the comparison, by default with the metric that the sweep asks about. Properties that depend
    on it raise `UsageError` if the sweep lacks the axis, the baseline or the metric that `options` name.
    """

    def __init__(
        self, sweep: SweepContents, plan: SweepRecord | None, *, options: CompareOptions | None = None
    ) -> None:
        self.sweep = sweep
        self.plan = plan
        self._given = options

    @classmethod
    def read(cls, paths: SweepPaths, *, observer: HeartbeatObserver | None = None) -> "SweepSnapshot":
        """Read a sweep's folder; an `observer` that has watched runs on other hosts may know that they are gone."""
        return cls(*read_results(paths, observer=observer))

    @cached_property
    def results(self) -> Table:
        """One row per run, the columns of results.csv."""
        return result_rows(self.sweep, self.plan)

    @property
    def epochs(self) -> Table:
        """One row per epoch of every run, the columns of epochs.csv; not cached, as it is the largest table."""
        return epoch_rows(self.sweep, self.plan)

    @cached_property
    def _options(self) -> CompareOptions:
        return self._given or with_metric_of_sweep(self.sweep, self.plan)

    @cached_property
    def matches(self) -> Matches:
        """The matched pairs, those along a stand-in axis included."""
        return match_sides(self.sweep, self.plan, self._options)

    @cached_property
    def comparison(self) -> ComparisonTable:
        """One row per matched pair, as shown to people: if the compared axis has no answer, another stands in."""
        return compare_matches(self.sweep, self.matches, self._options)

    @cached_property
    def comparison_without_stand_in(self) -> ComparisonTable:
        """One row per matched pair along the compared axis alone, the rows of comparison.csv."""
        options = self._given or CompareOptions()
        if self._options != options:
            return compare(self.sweep, self.plan, options)
        if self.matches.instead_of is None:
            return self.comparison
        return compare_matches(self.sweep, self.matches.without_stand_in(), options)

    @cached_property
    def crossovers(self) -> list[Crossover]:
        """The values of numeric axes at which one side overtakes the other; of inference, the sizes of its batches."""
        found = notable_crossovers(self.matches, self.comparison)
        latency = next(iter(inference_names(self.sweep.runs)), None)
        if latency is None or self._options.metric == latency:
            return found
        options = dataclasses.replace(self._options, metric=latency)
        matches = match_sides(self.sweep, self.plan, options)
        if BATCH_SIZE not in matches.without_stand_in().names:
            return found
        return [*found, *crossovers(matches, compare_matches(self.sweep, matches, options), BATCH_SIZE)]

    @cached_property
    def crossover_limits(self) -> list[str]:
        """A sentence for each axis of which only a part was searched for crossovers."""
        return skipped_crossover_notes(self.matches, self.comparison)

    @cached_property
    def paired_rounds(self) -> Sequence[Rounds]:
        """The rounds of every pair that was measured in turns."""
        return paired_rounds(self.matches)

    def with_figures(self, figures: "list[SweepFigure] | None") -> "SweepSnapshot":
        """Return a copy with these figures; with None it makes its own. Both share what has been computed."""
        other = copy.copy(self)
        other.__dict__.pop("figures", None)
        if figures is not None:
            other.__dict__["figures"] = figures
        return other

    @cached_property
    def figures(self) -> "list[SweepFigure]":
        """The figures with data, most informative first; a figure is drawn when it is saved or shown."""
        from runmanager.results.figures.catalog import sweep_figures

        return sweep_figures(
            self.sweep,
            results=self.results,
            comparison=self.comparison,
            crossovers=self.crossovers,
            rounds=self.paired_rounds,
            plan=self.plan,
        )
