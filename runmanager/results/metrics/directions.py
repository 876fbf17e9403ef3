"""Whether larger values of a metric are better: as requested, else as declared by the runs, else by its name."""

from collections.abc import Iterable

from runmanager.errors import UsageError
from runmanager.records.run.metric_direction import BETTER, prefers_larger
from runmanager.records.storage.reader import StoredRun
from runmanager.validation import fault

__all__ = ["declared_direction", "direction_of", "known_direction"]


def direction_of(name: str, runs: Iterable[StoredRun], *, better: str | None = None) -> bool:
    """Return whether larger values of a metric are better; `better` is one of `BETTER` and comes first.

    Raises `UsageError` where the runs contradict each other, and where nothing tells.
    """
    if better is not None:
        return BETTER[better]
    declared = declared_direction(name, runs)
    found = prefers_larger(name) if declared is None else declared
    if found is None:
        raise UsageError(
            fault("--better", f"be max or min for '{name}', whose name does not tell which is better", "none")
        )
    return found


def known_direction(name: str, runs: Iterable[StoredRun]) -> bool | None:
    """Return whether larger values of a metric are better; None where that is not known, or contradictory."""
    try:
        return direction_of(name, runs)
    except UsageError:
        return None


def declared_direction(name: str, runs: Iterable[StoredRun]) -> bool | None:
    """Return the direction that the runs declared; None without one. Raises `UsageError` where two contradict."""
    first: dict[bool, tuple[str, str]] = {}
    for run in runs:
        word = (run.record.better or {}).get(name)
        if word in BETTER:
            first.setdefault(BETTER[word], (word, run.record.name))
    if len(first) > 1:
        got = " and ".join(f"{word} ({run})" for word, run in first.values())
        raise UsageError(fault("--better", f"be max or min for '{name}', which the runs declare differently", got))
    return next(iter(first), None)
