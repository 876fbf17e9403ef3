"""Growth of a cost with a size: the exponent of a fitted power law, and its row in a table."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from benchmarks.rows import Budget, Row, format_seconds

__all__ = ["exponent", "growth_row"]

_LINEAR = Budget(1.1, format="^{:g}".format)  # linear, with room for noise between two sizes


def growth_row(
    what: str, costs: Mapping[int, Sequence[float]], *, of: str, format_cost: Callable[[float], str] = format_seconds
) -> Row:
    """Return the row of costs by size, each measured several times in the same rounds; `of` names the unit of size.

    The budget applies to the exponent between the two largest sizes, where fixed costs hide growth least.
    """
    last = list(costs)[-2:]
    rounds = list(zip(*(costs[size] for size in last), strict=True))
    exponents = [exponent(dict(zip(last, each, strict=True))) for each in rounds]
    value, low, high = median(exponents), min(exponents), max(exponents)
    return Row(
        f"{what}: {min(costs):,} to {max(costs):,} {of}",
        ", ".join(format_cost(median(each)) for each in costs.values()),
        ratio=f"{of}^{value:.2f} ({low:.2f} to {high:.2f})",
        rounds=str(len(rounds)),
        budget=str(_LINEAR),
        met=_LINEAR.verdict(value, low, high),
    )


def exponent(costs: Mapping[int, float]) -> float:
    """Return the least-squares slope of log cost over log size: 1 is linear, 0 is constant."""
    sizes, logs = [math.log(size) for size in costs], [math.log(cost) for cost in costs.values()]
    middle, mean = sum(sizes) / len(sizes), sum(logs) / len(logs)
    products = sum((size - middle) * (log - mean) for size, log in zip(sizes, logs, strict=True))
    return products / sum((size - middle) ** 2 for size in sizes)
