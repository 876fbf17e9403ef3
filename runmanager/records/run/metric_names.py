"""What the name of a metric says: which column of every table it means, on which samples it was measured, of what, and
whether larger values are better.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

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


_VALIDATION, _OTHER, _TRAINING, _SPEED = range(4)
_EVALUATION = frozenset(("eval", "evaluating", "evaluation"))
_SAMPLES = {
    **dict.fromkeys(
        (*("dev", "holdout", "val", "vali", "valid", "validate", "validating", "validation"), *_EVALUATION), _VALIDATION
    ),
    **dict.fromkeys(("test", "testing", "tst"), _OTHER),
    **dict.fromkeys(("train", "training", "trn"), _TRAINING),
}
_OF_SPEED = frozenset(("latency", "second", "seconds", "throughput", "time"))
_SPLIT = "|".join(sorted(_SAMPLES, key=len, reverse=True))
_MEASURED = "acc|accuracy|auc|err|error|f1|iou|loss|mae|mse|perplexity|ppl|rmse|score"
_SAMPLES_IN_NAME = re.compile(rf"(?i)(?<![^\W_])(?:{_SPLIT})(?![^\W_])[\W_]?")
_IN_ONE_WORD = re.compile(rf"(?:{_MEASURED})({_SPLIT})|({_SPLIT})(?:{_MEASURED})")


def by_preference(names: Iterable[str]) -> list[str]:
    """Return the metrics in the order in which one is chosen where none was asked for; equal ones keep theirs.

    Those of validation come first, then those of a test and those whose name does not say on which samples they were
    measured, then those of training, which the columns `loss` and `accuracy` are; speeds and times are last.
    """
    return sorted(names, key=_preference)


def _preference(name: str) -> int:
    if name.removeprefix("metrics.") in ("loss", "accuracy"):
        return _TRAINING
    parts = [list(_words(part)) for part in re.sub(r"(?i)h[eo]ld[\W_]?out", "holdout", name).split("/")]
    if not _OF_SPEED.isdisjoint(parts[-1]):
        return _SPEED
    for words in reversed(parts):  # `val/train_loss` is more about `train_loss` than about the group
        known = [word for word in words if word in _SAMPLES]
        exact = [word for word in known if word not in _EVALUATION] or known  # `train_eval` is an evaluation on `train`
        if exact:
            return _SAMPLES[exact[-1]]
    return _OTHER


def by_quantity(names: Iterable[str]) -> dict[str, list[str]]:
    """Group metrics that are one quantity on different samples, in the order of the first of each group.

    Within a group they have the order of `by_preference`: `loss` has `val_loss` and `loss`.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_quantity(name), []).append(name)
    return {quantity: by_preference(group) for quantity, group in groups.items()}


def _quantity(name: str) -> str:
    """The name without the words that say on which samples it was measured, which may be all that it has."""
    if (column := column_of_metric(name)) is not None:
        return column.removeprefix("val_")
    return _SAMPLES_IN_NAME.sub("", name.removeprefix("metrics.")).strip("/_. -").lower() or name


def _words(part: str) -> Iterator[str]:
    """Yield the words of a part of a name in lower case, without digits at their ends: `valLoss2` has `val`, `loss`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", part)
    for word in re.split(r"[\W_]+", spaced.lower()):
        both = _IN_ONE_WORD.fullmatch(word)
        yield (both[1] or both[2]) if both else word.rstrip("0123456789")


_RESERVED = frozenset(
    (
        *("baseline", "beta", "best", "budget", "chance", "clip", "coef", "coeff", "coefficient", "cutoff", "decay"),
        *("delta", "desired", "earlier", "expected", "goal", "highest", "initial", "lambda", "last", "limit", "lowest"),
        *(
            "lr",
            "margin",
            "max",
            "maximum",
            "min",
            "minimum",
            "needed",
            "new",
            "old",
            "patience",
            "peak",
            "prev",
            "previous",
        ),
        *("prior", "record", "ref", "reference", "required", "scale", "start", "stop", "target", "temperature", "thr"),
        *("loaded", "loading", "reloaded", "reloading", "restored", "restoring", "resumed", "resuming"),
        *("thresh", "threshold", "tol", "tolerance", "weight", "weights"),
    )
)
_OF_PROGRESS = frozenset(
    (
        *(
            "avail",
            "available",
            "batch",
            "batches",
            "code",
            "count",
            "cpu",
            "data",
            "duration",
            "elapsed",
            "epoch",
            "epochs",
        ),
        *("eta", "exit", "flops", "fps", "free", "gb", "global", "gpu", "grad", "id", "ips", "it", "iter", "iteration"),
        *("iterations", "iters", "kb", "learning", "len", "length", "mb", "mem", "memory", "momentum", "ms", "norm"),
        *("num", "number", "param", "parameters", "params", "pct", "per", "percent", "pid", "port", "progress", "ram"),
        *("rank", "rate", "remaining", "runtime", "samples", "sec", "secs", "seed", "shape", "size", "sps", "speed"),
        *("step", "steps", "tokens", "total", "v", "version", "vram", "worker", "workers", "world", "wall", "s", "h"),
    )
)


def is_result(name: str) -> bool:
    """Whether a name says by its words that it is what training came to, and nothing else.

    That is a metric with a direction, but no speed or time, and none of a target, a threshold, a weight, an earlier
    value or the best so far.
    """
    words = frozenset(_words(name))
    if not words.isdisjoint(_RESERVED | _OF_SPEED):
        return False
    return column_of_metric(name) is not None or prefers_larger(name) is not None


def may_be_result(name: str) -> bool:
    """Whether the words of a name leave open that it is a result: none is of a rate, a time, a counter or a setting."""
    return frozenset(_words(name)).isdisjoint(_RESERVED | _OF_SPEED | _OF_PROGRESS)


def samples_words(text: str) -> list[str]:
    """Return the words of a text, as they stand there, that say on which samples something was measured."""
    return [word for word in re.findall(r"[^\W\d_]+", text) if word.lower() in _SAMPLES]


def name_key(name: str) -> str:
    """Return what two names have in common that are spellings of one: `Val loss`, `val_loss` and `loss/val`."""
    key = column_of_metric(name) or re.sub(r"[\W_]+", "", name.lower())
    return _QUANTITIES.get(key, key)
