"""Whether larger values of a metric are better: as declared, else by the words of its name."""

import re
from collections.abc import Iterator, Mapping

from runmanager.errors import UsageError

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
    """Whether larger values of a column are better, by the last known word in its name; None without one.

    None too if a later word says that the value is something else, as in `accuracy_std` or `loss_scale`, and where the
    name has a word for the opposite, as in `neg_mean_squared_error`.
    """
    words = list(_words_from_the_end(column))
    if re.match(r"1\s*-", column) or not _OPPOSITES.isdisjoint(words):
        return None
    for word in words:
        if word in _LARGER_IS_BETTER:
            return True
        if word in _SMALLER_IS_BETTER:
            return False
        if word in _OTHER_QUANTITIES:
            return None
    return None


def _words_from_the_end(column: str) -> Iterator[str]:
    """Yield the words of a name, the last one first: `val/F1Score` has `f1score`, `score`, `f1`, `val`.

    A part is tried as a whole before it is split at its capitals, as `mIoU` and `mAP` are one word; and without digits
    at its end, as in `acc1`.
    """
    for part in reversed(re.split(r"[^A-Za-z0-9]+", column)):
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", part).split()
        for word in dict.fromkeys([part, part.rstrip("0123456789"), *reversed(words)]):
            yield word.lower()


_LARGER_IS_BETTER = frozenset(
    (
        *(
            "acc",
            "accuracy",
            "auc",
            "auroc",
            "auprc",
            "rocauc",
            "bleu",
            "dice",
            "f1",
            "iou",
            "map",
            "mcc",
            "miou",
            "mrr",
            "ndcg",
            "prec",
            "precision",
            "psnr",
            "r2",
        ),
        *("recall", "return", "reward", "rouge", "score", "second", "ssim", "throughput", "top1", "top5"),
    )
)
_OTHER_QUANTITIES = frozenset(
    (
        *("count", "delta", "diff", "difference", "drop", "epoch", "gap", "improvement", "norm", "num", "ratio"),
        *("scale", "std", "stderr", "step", "steps", "threshold", "var", "variance", "weight"),
    )
)
_OPPOSITES = frozenset(("inverse", "minus", "neg", "negated", "negative"))
_SMALLER_IS_BETTER = frozenset(
    (
        *("bpb", "bpc", "brier", "cer", "ece", "err", "error", "fid", "latency", "loss", "lpips", "mae", "mse", "nll"),
        *("perplexity", "ppl", "rmse"),
        *("seconds", "time", "wer"),
    )
)
_KNOWN = (*_LARGER_IS_BETTER, *_SMALLER_IS_BETTER)


def has_known_word(text: str) -> bool:
    """Whether a text may name a metric with a direction: quickly, and without looking where a word begins and ends."""
    lower = text.lower()
    return any(word in lower for word in _KNOWN)
