"""The format of tracked predictions: their task, the dimension of their classes, and which labels count.

| task | predictions | labels | correct if |
| --- | --- | --- | --- |
| `multiclass` | scores (batch, classes, …) | class numbers (batch, …) | the largest score is the label's |
| `binary` | logits (batch, …), also (batch, 1, …) | 0 or 1, same count | the logit is above 0 iff the label is 1 |
| `multilabel` | logits (batch, labels, …) | 0 or 1, same shape | the same, for each label separately |
"""

from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

import torch

from runmanager.errors import TensorMismatchError, UsageError
from runmanager.tracking.torch_internals import as_plain

Task = Literal["multiclass", "binary", "multilabel"]

IGNORED = -100
"""The default label that does not count, as in PyTorch's losses."""


class PredictionOptions(TypedDict, total=False):
    """The keyword arguments that describe predictions and labels."""

    task: Task | None
    class_dim: int | None
    ignore_index: int


_COMPARED_AS: dict[torch.dtype, torch.dtype | None] = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), None),
    **dict.fromkeys((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), None),
    **dict.fromkeys((torch.bool, torch.uint16, torch.uint32), torch.int64),
    **dict.fromkeys(
        (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz), torch.float32
    ),
}
"""The type that numbers of a type are compared in, None for their own: PyTorch does not compare all of them."""
_MAX_DENSE = 1 << 24  # numbers of a sparse tensor that may be made dense

_NO_CLASSES = "leave the predictions out and pass samples=… if they are not classes"


@dataclass(frozen=True)
class PredictionFormat:
    """How predictions are compared with labels.

    `class_dim` is the dimension of the class scores, the largest of which is the prediction; None if each score is a
    separate prediction, positive above 0. `ignored` is the label that does not count; None if the labels' type cannot
    hold it.
    """

    class_dim: int | None
    ignored: int | None


def comparable(preds: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return predictions and labels as dense tensors of types that can be compared, themselves if they are.

    Raises `ValueError` where that is not possible.
    """
    preds, labels = as_plain(preds), as_plain(labels)
    if preds.is_meta and labels.is_meta:
        raise ValueError("they have no data")
    return _comparable(preds), _comparable(labels)


def _comparable(plain: torch.Tensor) -> torch.Tensor:
    is_dense = plain.layout is torch.strided and not plain.is_nested
    if is_dense and _COMPARED_AS.get(plain.dtype, plain) is None:
        return plain
    plain = plain.detach()
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.is_nested or plain.dtype not in _COMPARED_AS or (not is_dense and plain.numel() > _MAX_DENSE):
        raise ValueError(f"{'nested tensors' if plain.is_nested else plain.dtype} cannot be")
    if not is_dense:
        plain = plain.to_dense()
    return plain.to(_COMPARED_AS[plain.dtype] or plain.dtype)


def resolve_format(
    preds: torch.Tensor, labels: torch.Tensor, *, task: Task | None, class_dim: int | None, ignore_index: int
) -> PredictionFormat:
    """Determine the format from shapes and types, without reading values.

    Without `task` predictions are multiclass, without `class_dim` their classes are in dimension 1. Raises `UsageError`
    if the shapes are ambiguous, and `TensorMismatchError` if they fit no format.
    """
    _check_arguments(task, class_dim, ignore_index)
    _check_devices(preds, labels)
    if task == "binary" or task == "multilabel":
        if class_dim not in (None, 1):
            raise UsageError(
                f"`class_dim` must be left out where each prediction is a yes or a no (task={task!r}), got {class_dim}."
            )
        _check_binary(preds.shape, labels.shape, task)
        dim = None
    else:
        if task is None:
            _check_is_multiclass(preds, labels)
        dim = _dim_of_classes(preds.shape, labels.shape, class_dim)
    return PredictionFormat(dim, ignore_index if _can_be(labels.dtype, ignore_index) else None)


def _check_arguments(task: object, class_dim: object, ignore_index: object) -> None:
    if task is not None and task not in get_args(Task):
        raise UsageError(f"`task` must be multiclass, binary or multilabel, got {task!r}; {_NO_CLASSES}.")
    if not isinstance(ignore_index, int) or isinstance(ignore_index, bool):
        raise UsageError(f"`ignore_index` must be a whole number, got {ignore_index!r}; leave it out for {IGNORED}.")
    if class_dim is not None and (not isinstance(class_dim, int) or isinstance(class_dim, bool)):
        raise UsageError(f"`class_dim` must be the number of a dimension, got {class_dim!r}; leave it out for 1.")


def _check_devices(preds: torch.Tensor, labels: torch.Tensor) -> None:
    if preds.device != labels.device:
        raise TensorMismatchError(
            f"Predictions and labels must be on one device, got preds on {preds.device} and labels on "
            f"{labels.device}; move the labels with labels.to('{preds.device}')."
        )


def _check_binary(preds: torch.Size, labels: torch.Size, task: Task) -> None:
    if task == "multilabel":
        if len(preds) < 2:
            raise UsageError(
                f"Predictions of task='multilabel' must have the shape (batch, labels, …), {_got(preds, labels)}; "
                "pass task='binary' for one answer a sample."
            )
        if preds != labels:
            raise UsageError(
                f"Predictions of task='multilabel' must have the shape of their labels, {_got(preds, labels)}."
            )
    elif not preds or _squeezed(preds) != _squeezed(labels):
        raise UsageError(
            f"Predictions of task='binary' must be one logit for each label, {_got(preds, labels)}; pass "
            "task='multiclass' for a score of each class."
        )


def _check_is_multiclass(preds: torch.Tensor, labels: torch.Tensor) -> None:
    """Refuse shapes and types that may belong to another task, where none is named."""
    if preds.shape == labels.shape and preds.ndim:
        is_one_each = _squeezed(preds.shape) == preds.shape[:1]
        other = "" if is_one_each else ", labels.argmax(dim=1) as labels for probabilities of exclusive classes"
        raise UsageError(
            f"Predictions of the shape of their labels must have a task, {_got(preds.shape, labels.shape)}; pass "
            f"task='{'binary' if is_one_each else 'multilabel'}' for logits of yes or no{other}, or {_NO_CLASSES}."
        )
    if labels.is_floating_point() or labels.is_complex():
        raise UsageError(
            f"Labels must be class numbers where no `task` is named, got {labels.dtype}; pass the `task`, or "
            f"{_NO_CLASSES}."
        )


def _dim_of_classes(preds: torch.Size, labels: torch.Size, class_dim: int | None) -> int:
    found = [dim for dim in range(1, len(preds)) if preds[:dim] + preds[dim + 1 :] == labels]
    if class_dim is not None:
        dim = class_dim + len(preds) if class_dim < 0 else class_dim
        if dim not in found:
            raise UsageError(
                "`class_dim` must be the one dimension of the predictions, after the batch's, that the labels lack, "
                f"got {class_dim} for {_shapes(preds, labels)}."
            )
    elif not found:
        raise TensorMismatchError(
            "Predictions must be scores (batch, classes) for labels (batch,), or (batch, classes, …) for labels "
            f"(batch, …), {_got(preds, labels)}."
        )
    elif len(found) > 1 and preds[found[0]] > 1:
        ways = " or ".join(f"class_dim={dim}" for dim in found)
        raise UsageError(f"The dimension of the classes must be named, {_got(preds, labels)}; pass {ways}.")
    else:
        dim = found[0]
    if preds[dim] < 2:
        raise UsageError(
            f"Predictions must be scores of two classes or more, {_got(preds, labels)}; pass task='binary' for one "
            f"logit, or {_NO_CLASSES}."
        )
    if class_dim is None and dim != 1:
        way = -1 if dim == len(preds) - 1 else dim
        raise UsageError(
            f"The classes must lie in dimension 1 or be named, {_got(preds, labels)}; pass class_dim={way}."
        )
    return dim


def _squeezed(shape: torch.Size) -> torch.Size:
    """Return the shape without dimensions of size 1, except that of the batch."""
    return torch.Size([*shape[:1], *(size for size in shape[1:] if size != 1)])


def _can_be(dtype: torch.dtype, label: int) -> bool:
    """Return whether the type can hold this label: a comparison of bytes with -100 finds 156."""
    if dtype is torch.bool:
        return label in (0, 1)
    if dtype.is_floating_point or dtype.is_complex:
        return True
    return torch.iinfo(dtype).min <= label <= torch.iinfo(dtype).max


def _shapes(preds: torch.Size, labels: torch.Size) -> str:
    return f"predictions {tuple(preds)} and labels {tuple(labels)}"


def _got(preds: torch.Size, labels: torch.Size) -> str:
    return f"got {_shapes(preds, labels)}"
