"""The effect of two sides that were measured side by side, in rounds, and what it rests on."""

import math
from collections.abc import Sequence

from runmanager.records.run.attempts import session_seconds
from runmanager.records.run.run_record import WARMUP_TURNS
from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.comparability import describe_unfinished, disagreements
from runmanager.results.compare.comparison_table import CompareOptions, MeasuredEffect, Side
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.paired_speedup import (
    MAX_SESSIONS,
    MIN_ROUNDS,
    PairedSpeedup,
    half_width_after,
    sessions_needed,
)
from runmanager.text import pluralize

_FEW_PAIRS = 5


def paired_obstacles(sides: Sequence[Side], rounds: Sequence[Sequence[float]]) -> list[str]:
    """Return the reasons why the `rounds` of two sides cannot be compared; an empty list where they can."""
    unfinished = describe_unfinished(sides)
    found = unfinished or disagreements(sides)
    if not rounds and not unfinished:
        found.append(_too_few_rounds(sides))
    return found


def _too_few_rounds(sides: Sequence[Side]) -> str:
    first, second = ({turn.session for run in side.finished for turn in run.turns} for side in sides)
    # Where the sides took turns with each other, if only for warm-up, a longer run would have given rounds.
    way_out = f"; {_longer(sides)} gives more" if first & second else ""
    return f"too few rounds: no pair of processes has {MIN_ROUNDS} measured side by side{way_out}"


def _longer(sides: Sequence[Side]) -> str:
    """The seconds that would give a pair of processes enough rounds, at the pace of those that it had."""
    runs = [run for side in sides for run in side.finished]
    rounds = max((turn.round for run in runs for turn in run.turns), default=0)
    limit = _setting(runs[0].record.config, "measure", "max_seconds")
    if not rounds or not isinstance(limit, int | float):
        return "a longer `measure.max_seconds`"
    return f"`measure.max_seconds={math.ceil(limit * (MIN_ROUNDS + WARMUP_TURNS + 1) / rounds)}`"


def paired_effect(
    estimate: PairedSpeedup, sides: Sequence[Side], options: CompareOptions
) -> tuple[MeasuredEffect, list[str]]:
    """Return the effect of a paired speedup, and the sentences that say what it rests on."""
    drift = options.paired_drift
    margin = options.margin_of(THROUGHPUT.effect)
    runs = [run for side in sides for run in side.finished]
    pairs, lacking = estimate.sessions, _lacking(estimate, runs)
    effect = MeasuredEffect(estimate, drift, margin, by_seed={}, num_process_pairs=pairs, lacking=lacking)
    basis = f"{_describe_rounds(estimate)}: a difference must lie outside 1 ± {drift * 100:g}%"
    return effect, [basis, *_why_few_pairs(estimate, runs)]


def paired_rates(speedup: float, sides: Sequence[Side]) -> tuple[float, float]:
    """Return the rates of both sides in a typical round, whose ratio is the `speedup`; samples a second."""
    baseline, candidate = (side.typical or 1.0 for side in sides)
    middle = math.sqrt(baseline * candidate)
    low = middle / math.sqrt(speedup)
    return low, low * speedup


def _describe_rounds(estimate: PairedSpeedup) -> str:
    pairs = "1 pair of processes" if estimate.spread is None else f"{estimate.sessions} pairs of processes"
    batches = f" in batches of {estimate.rounds_a_batch}" if estimate.rounds_a_batch > 1 else ""
    spread = "unknown" if estimate.spread is None else f"{estimate.spread * 100:.2g}%"
    return f"{pairs}, {estimate.rounds} rounds side by side{batches}, spread of pairs {spread}"


def _lacking(estimate: PairedSpeedup, runs: Sequence[StoredRun]) -> str:
    """Return what would narrow the interval to `measure.half_width`; empty if it is narrow, or if that is not known."""
    limit, wanted = (_setting(runs[0].record.config, "measure", name) for name in ("max_seconds", "half_width"))
    if not isinstance(limit, int | float) or not isinstance(wanted, int | float):
        return ""
    if estimate.high <= estimate.value * (1 + wanted):
        return ""
    needed = sessions_needed(estimate, wanted)
    if needed is None:
        return ""  # no measurement would reach it
    if needed > MAX_SESSIONS:
        text = f"About {float(f'{needed:.2g}'):,.0f} pairs of processes would be needed to know it within {wanted:.1%}"
        if estimate.sessions >= MAX_SESSIONS:
            return f"{text}."
        reached = half_width_after(estimate, MAX_SESSIONS)
        seconds = math.ceil(limit * MAX_SESSIONS / estimate.sessions)
        return f"{text}; {MAX_SESSIONS}, as with `measure.max_seconds={seconds}`, would tell it within {reached:.1%}."
    more = pluralize(needed - estimate.sessions, "more pair", "more pairs")
    seconds = math.ceil(limit * needed / estimate.sessions)
    return f"About {more} would be needed to know it within {wanted:.1%}: `measure.max_seconds={seconds}`."


def _why_few_pairs(estimate: PairedSpeedup, runs: Sequence[StoredRun]) -> list[str]:
    """Return why there are only a few pairs of processes, where that is known."""
    if estimate.sessions >= _FEW_PAIRS:
        return []
    configs = [run.record.config for run in runs]
    if any(_setting(each, "checkpoint", "every") == 0 for each in configs):
        return ["`checkpoint.every`=0 leaves nothing to restart processes from"]
    seconds, limit = max(map(_process_seconds, runs), default=0.0), _setting(configs[0], "measure", "max_seconds")
    if isinstance(limit, int | float) and seconds * _FEW_PAIRS >= limit:
        return [f"a further pair takes {seconds:.2g} s and more of `measure.max_seconds`={limit:g}"]
    return []


def _setting(config: object, group: str, name: str) -> object:
    part = config.get(group) if isinstance(config, dict) else None
    return part.get(name) if isinstance(part, dict) else None


def _process_seconds(run: StoredRun) -> float:
    """Return the lifetime of a process that only took turns; without one, how long the first process took to start."""
    if later := session_seconds(run.record)[1:]:
        return max(later)
    first = next((epoch for epoch in run.epochs if epoch.epoch == 1), None)
    if first is None or first.run_seconds is None or first.wall_seconds is None:
        return 0.0
    return first.run_seconds - first.wall_seconds
