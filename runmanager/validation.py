"""Readable faults of single settings: what must hold, what was got, and the way out."""

import difflib
import math
from collections.abc import Iterable

__all__ = ["at_least_faults", "did_you_mean", "fault", "holdout_faults", "range_faults", "suggestion"]


def suggestion(name: str, known: Iterable[str]) -> str:
    """The way out of an unknown name: the known names most like it, or what there is where none is."""
    names = list(known)
    close = did_you_mean(name, names)
    if close:
        return close
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"there is {', '.join(names[:20]) or 'none'}{more}."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known names most like an unknown one, as a question; empty where none is like it."""
    close = difflib.get_close_matches(name, list(map(str, known)), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(repr(each) for each in close)}?" if close else ""


def fault(key: str, rule: str, value: object, way_out: str = "") -> str:
    """A fault as a sentence: *key* must *rule*, got *value*; *way out*."""
    sentence = f"`{key}` must {rule}, got {value}" + (f"; {way_out}" if way_out else "")
    return sentence if sentence.endswith((".", "?")) else f"{sentence}."


def at_least_faults(key: str, value: int | None, least: int) -> list[str]:
    """A fault if `value` is less than `least`; null is none."""
    return [] if value is None or value >= least else [fault(key, f"be at least {least}", value)]


def range_faults(key: str, value: float, low: float, high: float) -> list[str]:
    """A fault unless `low` <= `value` < `high`; NaN is outside."""
    if low <= value < high:
        return []
    limits = f"be at least {low:g}" + ("" if math.isinf(high) else f" and below {high:g}")
    return [fault(key, f"{limits} and finite" if math.isinf(high) else limits, value)]


def holdout_faults(value: int | float | None) -> list[str]:
    """A fault unless `dataset.holdout` is null, a fraction or a count."""
    if value is None or (isinstance(value, float) and 0 < value < 1):
        return []
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return []
    rule = "be a fraction between 0 and 1 or a whole count of at least 1"
    return [fault("dataset.holdout", rule, value, "null takes the official test split")]
