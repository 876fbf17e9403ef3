"""Names that other programs give to the metrics with a column of their own: `val/loss` is `val_loss`."""

import re

__all__ = ["column_of_metric"]

_COLUMNS = frozenset(("loss", "accuracy", "val_loss", "val_accuracy"))
_SPLITS = {
    **dict.fromkeys(("eval", "val", "valid", "validation"), "val_"),
    **dict.fromkeys(("train", "training"), ""),
}
_QUANTITIES = {"loss": "loss", "acc": "accuracy", "accuracy": "accuracy"}


def column_of_metric(name: str) -> str | None:
    """Return which of `loss`, `accuracy`, `val_loss` and `val_accuracy` a name means; None for any other metric.

    A name means a column if it consists of the data set (`eval`, `val`, `valid`, `validation`; `train`, `training`) and
    the quantity (`loss`; `acc`, `accuracy`), in either order and any case: `val/loss`, `Loss/train`, `eval_accuracy`.
    Lightning's suffix `_epoch` is ignored. `test_loss` is another metric, and so is `train_loss_step`.
    """
    if name in _COLUMNS:
        return name
    words = re.split(r"[/_. -]", name.lower().removesuffix("_epoch"))
    if len(words) != 2:
        return None
    for split, quantity in (words, words[::-1]):
        if split in _SPLITS and quantity in _QUANTITIES:
            return _SPLITS[split] + _QUANTITIES[quantity]
    return None
