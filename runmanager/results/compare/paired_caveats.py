"""What is said of a paired speedup: what it rests on, and why there were few pairs of processes."""

from collections.abc import Sequence

from runmanager.records.run.attempts import session_seconds
from runmanager.records.storage.reader import StoredRun
from runmanager.results.stats.paired_speedup import PairedSpeedup

__all__ = ["said_of_rounds", "why_so_few"]

_FEW_PAIRS = 5


def said_of_rounds(estimate: PairedSpeedup) -> str:
    """How many pairs of processes and rounds there were, and how far the pairs lie apart."""
    pairs = "1 pair of processes" if estimate.spread is None else f"{estimate.sessions} pairs of processes"
    batches = f" in batches of {estimate.rounds_a_batch}" if estimate.rounds_a_batch > 1 else ""
    spread = "unknown" if estimate.spread is None else f"{estimate.spread * 100:.2g}%"
    return f"{pairs}, {estimate.rounds} rounds side by side{batches}, spread of pairs {spread}"


def why_so_few(estimate: PairedSpeedup, runs: Sequence[StoredRun]) -> list[str]:
    """Why there are but few pairs, where that is known."""
    if estimate.sessions >= _FEW_PAIRS:
        return []
    settings = [run.record.config for run in runs]
    if any(_of(each, "checkpoint", "every") == 0 for each in settings):
        return ["`checkpoint.every`=0 leaves nothing to restart processes from"]
    seconds, most = max(map(_process_seconds, runs), default=0.0), _of(settings[0], "measure", "max_seconds")
    if isinstance(most, int | float) and seconds * _FEW_PAIRS >= most:
        return [f"a further pair takes {seconds:.2g} s and more of `measure.max_seconds`={most:g}"]
    return []


def _of(config: object, group: str, name: str) -> object:
    part = config.get(group) if isinstance(config, dict) else None
    return part.get(name) if isinstance(part, dict) else None


def _process_seconds(run: StoredRun) -> float:
    """For how long a process lived that did nothing but take turns; where none did, how long the first one started."""
    if later := session_seconds(run.record)[1:]:
        return max(later)
    first = next((epoch for epoch in run.epochs if epoch.epoch == 1), None)
    if first is None or first.run_seconds is None or first.wall_seconds is None:
        return 0.0
    return first.run_seconds - first.wall_seconds
