"""The differences that a comparison can detect with the runs that a sweep has or plans, and how many it needs."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.sweep_record import SweepRecord
from runmanager.results.compare.comparison_table import ANY_AXIS, CompareOptions, Side, enough_seeds
from runmanager.results.compare.matched_pairs import Match, Matches, match_sides
from runmanager.results.compare.sweep_question import other_metric, was_timed
from runmanager.results.compare.verdict import detectable_text, residuals_of_pairs, took_turns
from runmanager.results.findings.recommendations import MIN_EPOCHS
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import make_sample
from runmanager.results.stats.effects import MAX_RUNS, likely_deviations, power, runs_needed, smallest_detectable
from runmanager.results.stats.noise_model import Residuals

_EFFECT = 0.03  # the margin of a comparison: smaller effects are rarely worth a decision
_TARGET_POWER = 0.8
_MAX_CELLS = 2000  # of a plan: matching more takes too long


def detectable_before_running(
    sweep: SweepContents, plan: SweepRecord, epochs: Mapping[str, int], *, cells: Collection[str]
) -> list[str]:
    """Describe what the planned runs of a command can detect, and what they cannot answer, in sentences.

    They are about `device` if it varies, else about the first axis. `cells` are the signatures of the command's cells;
    the sweep may have others. `epochs` are the most that the run of each cell can measure, by signature, where that is
    known. Nothing is said of speed where it is not known that runs are timed.
    """
    if len(plan.cells) > _MAX_CELLS:
        return []
    matches = _only_between(match_sides(sweep, plan, CompareOptions(axis=ANY_AXIS)), frozenset(cells))
    axes = sorted((axis.name for axis in matches.axes), key=lambda name: name != "device")
    if not axes:
        return []
    is_timed = bool(epochs) or any(map(was_timed, sweep.runs))
    of_speed = _too_few_epochs(matches, axes[0], epochs) or _lines(matches, plan, axes[0]) if is_timed else []
    return [*of_speed, *_too_few_runs(matches, axes[0])]


def too_little_to_compare(sweep: SweepContents, plan: SweepRecord | None) -> list[str]:
    """Say what finished cells lack to be compared, if all lack it: a sentence on the outcome, and one on speed."""
    if len(sweep.runs) > _MAX_CELLS:
        return []
    matches = match_sides(sweep, plan, CompareOptions(axis=ANY_AXIS))
    pairs = [match for match in matches.pairs if all(side.finished for side in match.sides)]
    if not pairs:
        return []
    said = []
    needed = CompareOptions.min_seeds
    outcome = other_metric(sweep.runs, plan, THROUGHPUT.name)
    if outcome and all(min(len(side.finished) for side in match.sides) < needed for match in pairs):
        said.append(f"A comparison of {outcome} needs {needed} runs of each cell, {_with_seeds(matches)}.")
    needed = CompareOptions.min_epochs
    most = max(min(sum(map(len, side.values)) for side in match.sides) for match in pairs)
    is_timed = any(map(was_timed, sweep.runs)) and not any(side.in_turns for match in pairs for side in match.sides)
    if is_timed and most < needed:
        enough = _enough_epochs(matches, pairs, most)
        how = f", as with {enough}" if enough else ""
        said.append(f"A comparison of speeds needs {needed} measured epochs of each cell{how}.")
    return said


def _only_between(matches: Matches, cells: Collection[str]) -> Matches:
    """The pairs whose two sides both have one of these cells, and their axes."""
    pairs = [
        match
        for match in matches.pairs
        if all(any(cell.signature in cells for cell in side.cells) for side in match.sides)
    ]
    axes = [axis for axis in matches.axes if any(match.axis == axis for match in pairs)]
    return dataclasses.replace(matches, pairs=pairs, axes=axes)


def _enough_epochs(matches: Matches, pairs: Sequence[Match], most: float) -> str:
    """The setting of enough epochs for these pairs, the best of which measures the `most`; empty if none is known."""
    cells = [cell for match in pairs for side in match.sides for cell in side.cells]
    planned = [value for cell in cells if isinstance(value := matches.cells.value(cell, "epochs"), int)]
    enough = max(MIN_EPOCHS, max(planned, default=0) + CompareOptions.min_epochs - int(most))
    return f"`epochs={enough}`" if planned else ""


def _with_seeds(matches: Matches) -> str:
    seeds = matches.cells.seeds
    return f"as with `{enough_seeds(seeds)}`{'' if seeds else ' if the program takes a seed'}"


def _too_few_epochs(matches: Matches, axis: str, epochs: Mapping[str, int]) -> list[str]:
    """Say that speeds cannot be compared, if a side of every pair will measure too few epochs."""
    needed = CompareOptions.min_epochs
    pairs = [match for match in matches.pairs if match.axis.name == axis and all(side.cells for side in match.sides)]
    counts = [min((_most_epochs(side, epochs), side.label) for side in match.sides) for match in pairs]
    most, label = max(counts, default=(math.inf, ""))
    if most >= needed:
        return []
    enough = _enough_epochs(matches, pairs, most)
    way_out = f"; {enough} makes enough, also where the second is" if enough else ""
    text = f"Speeds cannot be compared along {axis}: {needed} measured epochs a side are needed, and {label} would have"
    return [f"{text} {f'at most {most}' if most else 'none'}, as the first of a run is warm-up{way_out}."]


def _most_epochs(side: Side, epochs: Mapping[str, int]) -> float:
    """The most epochs that a side can measure; infinity if that is not known, or if its runs take turns."""
    if side.in_turns:
        return math.inf
    done = {run.record.signature for run in side.finished}
    to_come = (epochs.get(cell.signature, math.inf) for cell in side.cells if cell.signature not in done)
    return sum(map(len, side.values)) + sum(to_come)


def _too_few_runs(matches: Matches, axis: str) -> list[str]:
    """Say that metrics with one value a run cannot be compared, which seeds would make possible."""
    needed = CompareOptions.min_seeds
    sides = [side for match in matches.pairs if match.axis.name == axis for side in match.sides if side.cells]
    runs, label = min(((len(side.cells), side.label) for side in sides), default=(needed, ""))
    if runs >= needed:
        return []
    text = f"Accuracies and losses can be compared from {needed} runs a side on, {_with_seeds(matches)}"
    return [f"{text}: {label} has {runs}."]


def detectable_by_more_runs(matches: Matches, plan: SweepRecord | None) -> list[str]:
    """Describe what more runs could detect along the compared axis, in a sentence."""
    return _lines(matches, plan, matches.axes[-1].name)


def _lines(matches: Matches, plan: SweepRecord | None, axis: str) -> list[str]:
    """Skip pairs with a side without cells or measured in turns, and comparisons by other metrics."""
    pairs = [
        match
        for match in matches.pairs
        if match.axis.name == axis and all(side.cells and not side.in_turns for side in match.sides)
    ]
    if not pairs or matches.metric != THROUGHPUT:
        return []
    residuals = _residuals(pairs)
    runs = min(len(side.cells) for match in pairs for side in match.sides)
    deviations = likely_deviations(residuals)
    basis = _basis(residuals, deviations)
    least = smallest_detectable(CompareOptions.drift, deviations=deviations, runs=runs, rows=len(pairs))
    only_larger = f"{detectable_text(least)} can be seen"
    seed = next(iter(matches.cells.seeds), None)
    name = axis.removesuffix(".name")
    value = f"value of {name}{', all else equal' if len({repr(each.settings) for each in pairs}) > 1 else ''}"
    needed = runs_needed(_EFFECT, deviations=deviations, share=_TARGET_POWER, rows=len(pairs))
    if runs == 1:
        way = f", as with `'{seed}=range({needed})'` as the first axis," if seed and needed else " in turns"
        return [f"With one run for each {value}, {only_larger}; {_enough(needed, way)} ({basis})."]
    indices = {signature: index for index, signature in enumerate(plan.starts)} if plan else {}
    if not all(took_turns(*(_start_times(side, indices) for side in match.sides)) for match in pairs):
        way = f", with `{seed}` as the first axis," if seed else " in turns"
        return [f"As the values of {name} run one after the other, {only_larger}; {_enough(needed, way)} ({basis})."]
    share = power(_EFFECT, deviations=deviations, runs=runs, rows=len(pairs))
    text = f"With {runs} runs for each {value}, a difference in speed of {_EFFECT:.0%} is seen"
    more = f"; {_enough(needed)}" if share < _TARGET_POWER else ""
    return [f"{text} with a chance of {_percent(share)}{more} ({basis})."]


def _enough(needed: int | None, way: str = "") -> str:
    """How many runs of each value would see the margin with the target power, got in this `way`."""
    runs = f"more than {MAX_RUNS}" if needed is None else str(needed)
    return f"{runs} runs each{way} would show one of {_EFFECT:.0%} with a chance of {_TARGET_POWER:.0%}"


def _residuals(pairs: Sequence[Match]) -> Residuals:
    """Return the noise between runs from the pairs, or from their sides where the pairs cannot be compared."""
    found = residuals_of_pairs([match.sides for match in pairs])
    if found.dof:
        return found
    sides = {tuple(cell.signature for cell in side.cells): side for match in pairs for side in match.sides}
    seen = [make_sample(side.values, is_ratio=True).residuals for side in sides.values() if len(side.values) > 1]
    return Residuals(math.fsum(each.squares for each in seen), math.fsum(each.dof for each in seen))


def _start_times(side: Side, indices: dict[str, int]) -> list[str]:
    """Return when each run of a side started; cells without a run start later, in the order of the plan."""
    return [
        (cell.stored and cell.stored.record.started_at) or f"~{indices.get(cell.signature, 0):09}"
        for cell in side.cells
    ]


def _basis(residuals: Residuals, deviations: Sequence[float]) -> str:
    """Say where the deviation between runs of equal settings comes from."""
    if len(deviations) == 1:
        return f"if runs of equal settings differ by {deviations[0]:.0%}, as is assumed so far"
    return f"runs of equal settings differ by {math.sqrt(residuals.squares / residuals.dof):.1%} here"


def _percent(share: float) -> str:
    """Format a probability, never as 100%; below a tenth it is luck, whatever the noise."""
    return "under 10%" if share < 0.1 else "over 99%" if share > 0.99 else f"{share:.0%}"
