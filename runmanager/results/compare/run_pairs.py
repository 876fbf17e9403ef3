"""Pairing of the runs of two sides: by seed, or by their order of start."""

from collections.abc import Sequence

from runmanager.records.run.attempts import measured_since
from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.cell_pairing import SEED

__all__ = ["RunPair", "pair_runs", "pair_seeds"]

RunPair = tuple[StoredRun, StoredRun]
"""A run of the baseline and a run of the candidate."""


def pair_runs(baseline: Sequence[StoredRun], candidate: Sequence[StoredRun]) -> list[RunPair] | None:
    """Pair the runs of two sides, baseline first; None where they are two independent samples.

    The runs are paired by design, never by what was measured: by seed, where both sides have the same seeds, each once;
    else by time, where the runs in their order of start are consecutive pairs with one run of either side.
    """
    if len(baseline) != len(candidate) or len(baseline) < 2:
        return None
    return _by_seed(baseline, candidate) or _by_time(baseline, candidate)


def pair_seeds(pairs: Sequence[RunPair] | None) -> list[str]:
    """Return the seed of each pair; an empty list where the runs of a pair have different seeds, or seeds repeat."""
    seeds = [[str(run.record.config.get(SEED)) for run in pair] for pair in pairs or ()]
    are_shared = all(one == other for one, other in seeds) and len({one for one, _ in seeds}) == len(seeds)
    return [one for one, _ in seeds] if are_shared else []


def _by_seed(baseline: Sequence[StoredRun], candidate: Sequence[StoredRun]) -> list[RunPair] | None:
    first, second = ({str(run.record.config.get(SEED)): run for run in side} for side in (baseline, candidate))
    if len(first) != len(baseline) or first.keys() != second.keys():
        return None
    return [(run, second[seed]) for seed, run in first.items()]


def _by_time(baseline: Sequence[StoredRun], candidate: Sequence[StoredRun]) -> list[RunPair] | None:
    starts = [
        (measured_since(run.record, run.epochs) or "", index, run)
        for index, side in enumerate((baseline, candidate))
        for run in side
    ]
    starts.sort(key=lambda each: each[:2])
    pairs = []
    for one, other in zip(starts[::2], starts[1::2], strict=True):
        if one[1] == other[1]:
            return None
        pairs.append((one[2], other[2]) if one[1] == 0 else (other[2], one[2]))
    return pairs
