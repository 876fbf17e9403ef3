"""Whether larger values of a metric are better: as declared, else by the words of its name."""

import re
from collections.abc import Mapping

from runmanager.errors import UsageError

__all__ = ["BETTER", "MAX", "MIN", "is_larger_better", "parse_better", "prefers_larger"]

MIN, MAX = "min", "max"

BETTER = {"max": True, "min": False, "larger": True, "smaller": False}
"""The words for a direction, and whether larger values are better."""


def parse_better(better: str) -> str:
    """Return `min` or `max` for a direction as users write it. Raises `UsageError` for any other word."""
    if not isinstance(better, str) or better not in BETTER:
        raise UsageError(f"`better` must be min or max (or smaller, larger), got {better!r}.")
    return MAX if BETTER[better] else MIN


def is_larger_better(name: str, declared: Mapping[str, str]) -> bool | None:
    """Whether larger values of metric `name` are better: as `declared` (`min`, `max`), else by its name's words."""
    if name in declared:
        return declared[name] == MAX
    return prefers_larger(name)


def prefers_larger(column: str) -> bool | None:
    """Whether larger values of a column are better, by the last known word in its name; None without one."""
    for word in reversed(re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column).lower())):
        if word in _LARGER_IS_BETTER:
            return True
        if word in _SMALLER_IS_BETTER:
            return False
    return None


_LARGER_IS_BETTER = frozenset(
    (
        *("acc", "accuracy", "auc", "auroc", "bleu", "dice", "f1", "iou", "map", "miou", "precision", "psnr", "r2"),
        *("recall", "return", "reward", "score", "second", "ssim", "throughput", "top1", "top5"),
    )
)
_SMALLER_IS_BETTER = frozenset(
    (
        *("cer", "err", "error", "fid", "latency", "loss", "mae", "mse", "nll", "perplexity", "ppl", "rmse"),
        *("seconds", "time", "wer"),
    )
)
