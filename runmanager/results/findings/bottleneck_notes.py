"""Why the compared runs are as fast as they are: a line for each thing that bounds some of them."""

from collections.abc import Sequence

from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.matching import Matches
from runmanager.results.findings.bottleneck import Bottleneck, find_bottleneck

__all__ = ["bottleneck_notes"]

_HUGE = 100
"""From here on it says no more how many times as fast: the share that is left is below what was measured of it."""


def bottleneck_notes(matches: Matches) -> list[str]:
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
    """`cpu, 3 of 4 runs (input): 31 to 38% of the epoch waits for data: …; at most 1.61 times as fast.`

    Where training is not all of an epoch, shares and gains are said of both.
    """
    largest = max(found, key=lambda each: each.whole_share)
    which = "" if len(found) == num_runs else f", {len(found)} of {num_runs} runs"
    cure = f": {largest.cure}" if largest.cure else ""
    of_wall, gain = _percent([each.whole_share for each in found]), _gain([each.whole_at_most for each in found])
    if largest.share is None:
        said, gain = f"{of_wall} of the epoch's wall time {largest.evidence}", f"{gain} as a whole"
    else:
        share = _percent([each.share for each in found if each.share is not None])
        in_training = _gain([each.at_most for each in found if each.at_most is not None])
        if (share, in_training) == (of_wall, gain):
            said = f"{share} of the epoch {largest.evidence}"
        else:
            said = f"{share} of the training epoch {largest.evidence} ({of_wall} of the wall time)"
            gain = f"{in_training} in training, and so {gain} as a whole"
    return f"{label}{which} ({largest.kind}): {said}{cure}; {gain}."


def _percent(shares: Sequence[float]) -> str:
    said = sorted({f"{share * 100:.0f}" for share in shares}, key=float)
    return f"{said[0]}%" if len(said) == 1 else f"{said[0]} to {said[-1]}%"


def _gain(at_most: Sequence[float]) -> str:
    most = max(at_most)
    return f"at most {most:.2f} times as fast" if most < _HUGE else f"over {_HUGE} times as fast at best"
