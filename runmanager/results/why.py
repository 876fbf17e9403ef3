"""Why the compared runs are as fast as they are: a line for each thing that bounds some of them."""

from collections.abc import Sequence

from runmanager.records.store import StoredRun
from runmanager.results.bottleneck import Bottleneck, find_bottleneck
from runmanager.results.matching import Matches

__all__ = ["why"]


def why(matches: Matches) -> list[str]:
    """What bounds the runs of each side and what to change first; nothing of runs whose records do not show it.

    Runs of one side that are bound alike, and have the same cure, share a line. Said of speed only.
    """
    if matches.metric.effect != "speedup":
        return []
    return [line for label, runs in matches.runs.items() for line in _lines(label, runs)]


def _lines(label: str, runs: Sequence[StoredRun]) -> list[str]:
    alike: dict[tuple[str, str], list[Bottleneck]] = {}
    for run in runs:
        if (found := find_bottleneck(run)) is not None:
            alike.setdefault((found.kind, found.cure), []).append(found)
    return [_line(label, found, len(runs)) for found in alike.values()]


def _line(label: str, found: Sequence[Bottleneck], num_runs: int) -> str:
    """`cpu, 3 of 4 runs (input): 31 to 38% of the epoch waits for data: …; at most 1.6 times as fast.`"""
    largest = max(found, key=lambda each: each.share)
    shares = sorted({f"{each.share * 100:.0f}" for each in found}, key=float)
    which = "" if len(found) == num_runs else f", {len(found)} of {num_runs} runs"
    cure = f": {largest.cure}" if largest.cure else ""
    most = max(each.at_most for each in found)
    share = f"{shares[0]}%" if len(shares) == 1 else f"{shares[0]} to {shares[-1]}%"
    return f"{label}{which} ({largest.kind}): {share} {largest.evidence}{cure}; at most {most:.2g} times as fast."
