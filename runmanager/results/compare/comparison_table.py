"""The table of a comparison: its rows, with the measured effect of each pair."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runmanager.results.compare.comparison_side import label_of
from runmanager.results.metrics.metric import Metric
from runmanager.results.stats.descriptive import Estimate
from runmanager.results.table_model.columns import Row, Table

__all__ = ["ComparisonRow", "ComparisonTable", "MeasuredEffect", "rows_by_sides"]


@dataclass(frozen=True)
class MeasuredEffect:
    """The effect of a pair: a speedup, a ratio or a difference, with its 95% interval.

    A difference is claimed where the interval lies more than `tolerance` from no effect, and ruled out where the
    interval lies within `margin` of no effect (None: never). `drift` is the bound of an unseen drift between the sides,
    which is part of the interval: no smaller difference is ruled out. Of contended runs a difference is claimed only
    where it is larger than `detectable`, the smallest that their noise lets see. `by_seed` is the effect in each seed,
    its logarithm for ratios; it is empty where the runs are not paired by seed. `num_process_pairs` counts the pairs of
    processes that were measured side by side; it is 0 for runs that were not. `lacking` is a sentence on what would
    narrow their interval to what was asked for, if it is not.
    """

    estimate: Estimate
    tolerance: float
    margin: float | None
    by_seed: Mapping[str, float]
    drift: float = 0.0
    detectable: float = 0.0
    num_process_pairs: int = 0
    lacking: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow(Row):
    """A pair of a comparison by `metric`; `effect` is None where it is not measured.

    `is_stand_in` marks a pair along an axis that the comparison chose because the requested one has no answer.
    `are_equal`: nothing speaks against a comparison, and the value is exactly the same in each pair of runs, so that
    their noise is not known.
    """

    metric: Metric
    effect: MeasuredEffect | None
    is_stand_in: bool
    are_equal: bool = False


@dataclass(frozen=True)
class ComparisonTable(Table):
    """A comparison, one row a matched pair.

    `command` compares along the stand-in axis alone, where that was picked from several by what they show.
    """

    rows: Sequence[ComparisonRow]
    command: str = ""


def rows_by_sides(rows: Sequence[ComparisonRow]) -> dict[tuple[str, str], list[ComparisonRow]]:
    """Group rows by the labels of candidate and baseline, in their order."""
    of_sides: dict[tuple[str, str], list[ComparisonRow]] = {}
    for row in rows:
        sides = label_of(row["axis"], row["candidate"]), label_of(row["axis"], row["baseline"])
        of_sides.setdefault(sides, []).append(row)
    return of_sides
