"""What the median of the epochs hides: runs that are slower or faster as a whole than their median epoch."""

from collections.abc import Sequence

from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.side import Side
from runmanager.results.load.run_summary import OVERALL, measured_epochs, overall_rate
from runmanager.results.model.columns import Row
from runmanager.results.stats.descriptive import median
from runmanager.results.stats.effects import geometric_mean
from runmanager.text import pluralize

__all__ = ["hidden_cost_notes", "hidden_cost_remarks", "is_otherwise_overall"]

_LEAST = 0.05
"""How far the whole must be from the median to be worth a word, as a share of the median."""
_MAX_NAMED = 5
_SLOWER, _FASTER = "periodic or one-off costs that the median hides", "faster epochs that the median hides"
_OTHERWISE = f"by `{OVERALL}` the speedup is"


def hidden_cost_notes(rows: Sequence[Row]) -> list[str]:
    """Which rows of a results table have such a rate, the most distant first: a line for each direction."""
    apart = [(share, row["run"]) for row in rows if (share := _apart(row[OVERALL], row["samples_per_second"]))]
    apart.sort(key=lambda each: -abs(each[0]))
    below, above = ([each for each in apart if (each[0] < 0) is is_below] for is_below in (True, False))
    notes = [("below", below, _SLOWER), ("above", above, _FASTER)]
    return [f"{OVERALL} is {where} samples_per_second by {_named(runs)}: {why}." for where, runs, why in notes if runs]


def hidden_cost_remarks(sides: Sequence[Side]) -> list[str]:
    """The same of two sides that are compared by medians of epochs, with the speedup that they have as a whole."""
    if not sides[0].metric.per_epoch:
        return []
    rates = [[known for run in side.finished if (known := _rates(run))] for side in sides]
    lines = []
    for side, of_side in zip(sides, rates, strict=True):
        if shares := [share for known in of_side if (share := _apart(*known))]:
            lines.append(_remark(side.label, shares, len(side.finished)))
    if lines and all(rates):
        whole, middle = (_ratio([[each[at] for each in of_side] for of_side in rates]) for at in (0, 1))
        if _apart(whole, middle):
            lines.append(f"{_OTHERWISE} {whole:.2f}")
    return lines


def _ratio(sides: Sequence[Sequence[float]]) -> float:
    """Candidate / baseline, of the geometric means over each side's runs."""
    baseline, candidate = map(geometric_mean, sides)
    return candidate / baseline


def is_otherwise_overall(reason: str | None) -> bool:
    """Whether a comparison's reason says that the speedup is another one as a whole."""
    return _OTHERWISE in (reason or "")


def _rates(run: StoredRun) -> tuple[float, float] | None:
    """The throughput of all measured epochs together, and that of the median one; None of a run without any."""
    measured = measured_epochs(run)
    whole, middle = overall_rate(measured), median([rate for epoch in measured if (rate := epoch.samples_per_second)])
    return (whole, middle) if whole and middle else None


def _apart(whole: float | None, middle: float | None) -> float:
    """How far the whole is from the median, as a share of it; 0 where that is not worth a word."""
    share = whole / middle - 1 if whole and middle else 0.0
    return share if abs(share) > _LEAST else 0.0


def _named(runs: Sequence[tuple[float, str]]) -> str:
    said = [f"{_percent(share)} ({run})" for share, run in runs[:_MAX_NAMED]]
    more = len(runs) - len(said)
    return ", ".join(said) + (f" and {pluralize(more, 'more run')}" if more > 0 else "")


def _remark(label: str, shares: Sequence[float], num_runs: int) -> str:
    furthest = max(shares, key=abs)
    where, why = ("below", _SLOWER) if furthest < 0 else ("above", _FASTER)
    up_to, which = ("up to ", f" in {len(shares)} of {num_runs} runs") if num_runs > 1 else ("", "")
    return f"{label}: overall {up_to}{_percent(furthest)} {where} its median epoch{which} ({why})"


def _percent(share: float) -> str:
    return f"{abs(share) * 100:.0f}%"
