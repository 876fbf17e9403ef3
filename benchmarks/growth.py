"""How a cost grows with a size: the exponent of the power law through what was measured, and its row in a table."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from benchmarks.rows import Budget, Row, as_seconds

__all__ = ["exponent", "grown"]

_LINEAR = Budget(1.1, words="an exponent of {:g}".format)  # 1, and some room for the noise between two sizes


def grown(
    what: str, costs: Mapping[int, Sequence[float]], *, of: str, words: Callable[[float], str] = as_seconds
) -> Row:
    """The row of costs by size, each measured several times in the same rounds; `of` is what the size counts.

    Judged is the exponent over the last decade or two sizes, where fixed costs, which hide a growth, are least.
    """
    last = list(costs)[-2:]
    rounds = list(zip(*(costs[size] for size in last), strict=True))
    exponents = [exponent(dict(zip(last, each, strict=True))) for each in rounds]
    value, low, high = median(exponents), min(exponents), max(exponents)
    over_all = exponent({size: median(each) for size, each in costs.items()})
    return Row(
        f"{what}: {', '.join(f'{size:,}' for size in costs)} {of}",
        ", ".join(words(median(each)) for each in costs.values()),
        ratio=f"{of}^{value:.2f} ({low:.2f} to {high:.2f}) at the end, {over_all:.2f} over all",
        rounds=str(len(rounds)),
        budget=str(_LINEAR),
        met=_LINEAR.verdict(value, low, high),
    )


def exponent(costs: Mapping[int, float]) -> float:
    """The slope of a cost's logarithm over that of the size, by least squares: 1 is linear, 0 no growth."""
    sizes, logs = [math.log(size) for size in costs], [math.log(cost) for cost in costs.values()]
    middle, mean = sum(sizes) / len(sizes), sum(logs) / len(logs)
    products = sum((size - middle) * (log - mean) for size, log in zip(sizes, logs, strict=True))
    return products / sum((size - middle) ** 2 for size in sizes)
