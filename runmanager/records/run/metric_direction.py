"""Whether larger values of a metric are better: as declared, else by the words of its name."""

import re

__all__ = ["prefers_larger"]


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
