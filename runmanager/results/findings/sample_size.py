"""What a comparison can find with the runs that a sweep has or plans, and how many it would take."""

import math
from collections.abc import Sequence

from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.record import SweepRecord
from runmanager.results.compare.matching import Match, Matches, match_sides
from runmanager.results.compare.metrics import THROUGHPUT
from runmanager.results.compare.options import ANY_AXIS, CompareOptions
from runmanager.results.compare.pairing import SEED
from runmanager.results.compare.side import Side
from runmanager.results.compare.verdict import residuals_of_pairs, took_turns
from runmanager.results.stats.effects import residuals_of_side
from runmanager.results.stats.noise_model import Residuals
from runmanager.results.stats.power import MAX_RUNS, power, runs_needed, smallest_detectable

__all__ = ["detectable_before_running", "detectable_by_more_runs"]

_EFFECT = 0.03  # the margin of a comparison: smaller effects are rarely worth a decision
_OFTEN = 0.8
_SEEDS = 5  # proposed where there is one run a side
_SUPPOSED = 0.02  # how far runs of equal settings differ, where none were measured
_LEAST_FREEDOM = 2  # of a measured deviation that is relied on
_MOST_CELLS = 2000  # of a plan: to match more takes longer than the answer is worth


def detectable_before_running(sweep: SweepContents, plan: SweepRecord) -> list[str]:
    """A sentence before the runs: along `device` where it varies, else along the first axis that does."""
    if len(plan.cells) > _MOST_CELLS:
        return []
    matches = match_sides(sweep, plan, CompareOptions(axis=ANY_AXIS))
    axes = sorted((axis.name for axis in matches.axes), key=lambda name: name != "device")
    return _lines(matches, plan, axes[0]) if axes else []


def detectable_by_more_runs(matches: Matches, plan: SweepRecord | None) -> list[str]:
    """A sentence for the axis that is compared."""
    return _lines(matches, plan, matches.axes[-1].name)


def _lines(matches: Matches, plan: SweepRecord | None, axis: str) -> list[str]:
    """Nothing of pairs that have a side without cells, were measured in turns, or are compared by another metric."""
    pairs = [
        match
        for match in matches.pairs
        if match.axis.name == axis and all(side.cells and not side.in_turns for side in match.sides)
    ]
    if not pairs or matches.metric != THROUGHPUT:
        return []
    residuals = _residuals(pairs)
    runs = min(len(side.cells) for match in pairs for side in match.sides)
    deviation, _ = _deviation(residuals)
    least = smallest_detectable(CompareOptions.drift, deviation=deviation, runs=runs, rows=len(pairs))
    only_larger = f"only differences above about {least:.0%} can be told"
    has_seed = SEED in matches.cells.names()
    if runs == 1:
        way_out = "`seed=0,1,2,3,4` as the first axis makes" if has_seed else f"{_SEEDS} runs a side in turns make"
        said = f"With one run a side along {axis} {only_larger}. {way_out} smaller ones possible"
        return [f"{said}: {_found(_SEEDS, residuals, len(pairs))}."]
    places = {signature: place for place, signature in enumerate(plan.cells)} if plan else {}
    if not all(took_turns(*(_order(side, places) for side in match.sides)) for match in pairs):
        way_out = "with `seed` as the first axis" if has_seed else "where the sides take turns"
        said = f"One side runs after the other along {axis}, so {only_larger}; {way_out} smaller ones can"
        return [f"{said}: {_found(runs, residuals, len(pairs))}."]
    return [f"{_found(runs, residuals, len(pairs))}."]


def _residuals(pairs: Sequence[Match]) -> Residuals:
    """What the pairs show of the noise between runs; where they cannot be compared, what their sides show alone."""
    found = residuals_of_pairs([match.sides for match in pairs])
    if found.dof >= _LEAST_FREEDOM:
        return found
    sides = {tuple(cell.signature for cell in side.cells): side for match in pairs for side in match.sides}
    seen = [residuals_of_side(side.values) for side in sides.values() if len(side.values) > 1]
    return Residuals(math.fsum(each.squares for each in seen), math.fsum(each.dof for each in seen))


def _order(side: Side, places: dict[str, int]) -> list[str]:
    """When each run of a side began; a cell without a run begins later, in the order of the plan."""
    return [
        (cell.stored and cell.stored.record.started_at) or f"~{places.get(cell.signature, 0):09}" for cell in side.cells
    ]


def _found(runs: int, residuals: Residuals, rows: int) -> str:
    """How often so many runs a side find an effect, and how many would often, by the measured noise if there is any."""
    deviation, basis = _deviation(residuals)
    share = power(_EFFECT, deviation=deviation, runs=runs, rows=rows)
    said = f"{runs} runs a side find {_EFFECT:.0%} in {_percent(share)} of cases"
    if share < _OFTEN:
        needed = runs_needed(_EFFECT, deviation=deviation, share=_OFTEN, rows=rows)
        said += f"; {f'more than {MAX_RUNS}' if needed is None else needed} would in {_OFTEN:.0%}"
    return f"{said} ({basis})"


def _deviation(residuals: Residuals) -> tuple[float, str]:
    """How far runs of equal settings differ, and how that is known."""
    if residuals.dof >= _LEAST_FREEDOM:
        deviation = math.sqrt(residuals.squares / residuals.dof)
        return deviation, f"runs of equal settings differ by {deviation:.1%} here"
    said = f"supposing that runs of equal settings differ by {_SUPPOSED:.0%}, as too few are measured yet"
    return _SUPPOSED, said


def _percent(share: float) -> str:
    """Chance is never said to be none, or certain."""
    return "under 1%" if share < 0.01 else "over 99%" if share > 0.99 else f"{share:.0%}"
