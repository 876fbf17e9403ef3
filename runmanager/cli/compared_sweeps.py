"""What `runmanager compare` compares: the pairs within one sweep, or those of two sweeps."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runmanager.cli.gate.proposed_duel import duel_of_sides, duel_of_sweeps
from runmanager.records.sweep.lookup import find_sweep, typed_name

if TYPE_CHECKING:
    from runmanager.records.storage.reader import SweepContents
    from runmanager.records.sweep.sweep_record import SweepRecord
    from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable
    from runmanager.results.compare.matched_pairs import Matches
    from runmanager.results.compare.options import CompareOptions
    from runmanager.results.gate.sweep_pairs import TwoSweeps

__all__ = ["OneSweep", "SweepPair"]


@dataclass(frozen=True)
class OneSweep:
    """The pairs within one sweep."""

    contents: "SweepContents"
    plan: "SweepRecord | None"
    title: str

    @classmethod
    def read(cls, name: str) -> "OneSweep":
        from runmanager.results.load.loader import read_results

        paths = find_sweep(name)
        return cls(*read_results(paths), f"Comparison of {paths.name}")

    def with_metric(self, options: "CompareOptions") -> "CompareOptions":
        from runmanager.results.compare.sweep_question import with_metric_of_sweep

        return with_metric_of_sweep(self.contents, self.plan, options)

    def match(self, options: "CompareOptions") -> "Matches":
        from runmanager.results.compare.matched_pairs import match_sides

        return match_sides(self.contents, self.plan, options)

    def in_turn(self, options: "CompareOptions", matches: "Matches") -> "tuple[CompareOptions, Matches]":
        from runmanager.results.compare.sweep_question import in_turn

        return in_turn(self.contents, self.plan, options, matches)

    def along_only_axis(self, options: "CompareOptions", matches: "Matches") -> "tuple[CompareOptions, Matches]":
        from runmanager.results.compare.sweep_question import along_only_axis

        return along_only_axis(self.contents, self.plan, options, matches)

    def compare(self, matches: "Matches", options: "CompareOptions") -> "ComparisonTable":
        from runmanager.results.compare.comparison import compare_matches

        return compare_matches(self.contents, matches, options)

    def answers(self, pairs: "ComparisonTable", options: "CompareOptions") -> list[str]:
        from runmanager.results.findings.answer_sentences import answers
        from runmanager.results.metrics.metric_lookup import requested_metric
        from runmanager.results.tables.results_table import result_rows

        runs = self.contents.runs
        metric = requested_metric(options.metric, runs, better=options.better)
        by = options.metric if metric is not None and metric.effect == "difference" else None  # the best is no speed
        better = None if by is None else options.better
        return answers(result_rows(self.contents, self.plan), pairs, runs=runs, metric=by, better=better)

    @property
    def typed_names(self) -> list[str]:
        return [typed_name(self.contents.paths)]

    @property
    def duel(self) -> "Callable[[ComparisonRow], str]":
        return partial(duel_of_sides, runs=self.contents.runs, seed_names=self.plan.seed_names if self.plan else ())


@dataclass(frozen=True)
class SweepPair:
    """The pairs across two sweeps."""

    sweeps: "TwoSweeps"

    @classmethod
    def read(cls, baseline: str, candidate: str) -> "SweepPair":
        from runmanager.results.gate.sweep_pairs import read_two_sweeps

        return cls(read_two_sweeps(find_sweep(baseline), find_sweep(candidate)))

    @property
    def contents(self) -> "SweepContents":
        return self.sweeps.together

    @property
    def plan(self) -> "SweepRecord | None":
        return self.sweeps.plans[1]

    @property
    def title(self) -> str:
        return f"Comparison of {self.sweeps.names[1]} with {self.sweeps.names[0]}"

    def with_metric(self, options: "CompareOptions") -> "CompareOptions":
        from runmanager.results.compare.sweep_question import with_metric_of_untimed

        return with_metric_of_untimed(self.contents.runs, self.plan, options)

    def match(self, options: "CompareOptions") -> "Matches":
        return self.sweeps.match(options)

    def in_turn(self, options: "CompareOptions", matches: "Matches") -> "tuple[CompareOptions, Matches]":
        return options, matches  # two sweeps have one axis: themselves

    def along_only_axis(self, options: "CompareOptions", matches: "Matches") -> "tuple[CompareOptions, Matches]":
        return options, matches

    def compare(self, matches: "Matches", options: "CompareOptions") -> "ComparisonTable":
        return self.sweeps.compare_matches(matches, options)

    def answers(self, pairs: "ComparisonTable", options: "CompareOptions") -> list[str]:
        from runmanager.results.findings.comparison_findings import comparison_answers

        return [line for lines in comparison_answers(pairs.rows, pairs) for line in lines]

    @property
    def typed_names(self) -> list[str]:
        return [typed_name(each.paths) for each in self.sweeps.contents]

    @property
    def duel(self) -> "Callable[[ComparisonRow], str]":
        runs = [each.runs for each in self.sweeps.contents]
        command, seed_names = ((), ()) if self.plan is None else (self.plan.command, self.plan.seed_names)
        return partial(duel_of_sweeps, runs=runs, command=command, seed_names=seed_names)
