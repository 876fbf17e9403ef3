"""Which runs of two sides belong together in pairs: those of one seed, and those that stood next to each other."""

from collections.abc import Sequence

from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.pairing import SEED

__all__ = ["Block", "blocks_of", "seeds_of"]

Block = tuple[StoredRun, StoredRun]


def blocks_of(baseline: Sequence[StoredRun], candidate: Sequence[StoredRun]) -> list[Block] | None:
    """The runs of two sides in pairs, baseline first; None where they are two samples without any pairs.

    They are pairs by design, never by what was measured: where both sides have the same seeds, each once; else where
    the runs, in their order of start, are one pair after another that holds a run of either side.
    """
    if len(baseline) != len(candidate) or len(baseline) < 2:
        return None
    return _by_seed(baseline, candidate) or _by_time(baseline, candidate)


def seeds_of(blocks: Sequence[Block] | None) -> list[str]:
    """The seed of each pair; empty where the runs of a pair do not share one."""
    seeds = [[str(run.record.config.get(SEED)) for run in block] for block in blocks or ()]
    are_shared = all(one == other for one, other in seeds) and len({one for one, _ in seeds}) == len(seeds)
    return [one for one, _ in seeds] if are_shared else []


def _by_seed(baseline: Sequence[StoredRun], candidate: Sequence[StoredRun]) -> list[Block] | None:
    sides = [{str(run.record.config.get(SEED)): run for run in side} for side in (baseline, candidate)]
    first, second = sides
    if len(first) != len(baseline) or first.keys() != second.keys():
        return None
    return [(run, second[seed]) for seed, run in first.items()]


def _by_time(baseline: Sequence[StoredRun], candidate: Sequence[StoredRun]) -> list[Block] | None:
    begun = [
        (run.record.started_at or "", place, run) for place, side in enumerate((baseline, candidate)) for run in side
    ]
    begun.sort(key=lambda each: each[:2])
    blocks = []
    for one, other in zip(begun[::2], begun[1::2], strict=True):
        if one[1] == other[1]:
            return None
        blocks.append((one[2], other[2]) if one[1] == 0 else (other[2], one[2]))
    return blocks
