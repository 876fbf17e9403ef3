"""The number of samples of a tracked step, and other counts that a program passes."""

import operator
from collections.abc import Mapping
from typing import Any

import torch

from runmanager.errors import UsageError
from runmanager.records.files.whole_numbers import MAX_INT64
from runmanager.tracking.torch_internals import as_plain

__all__ = ["num_samples", "require_64_bits", "whole_number"]


def num_samples(preds: torch.Tensor | None, labels: torch.Tensor | None, samples: int | None) -> int | None:
    """Return `samples`, by default the number of rows of labels; None for labels whose rows cannot be counted.

    Raises `UsageError` without either, and for predictions without labels, or that are not tensors.
    """
    if preds is not None and labels is None:
        raise UsageError("Tracked predictions must come with their labels, got none; pass both or leave both out.")
    if preds is not None and not (isinstance(preds, torch.Tensor) and isinstance(labels, torch.Tensor)):
        raise UsageError(
            f"Predictions and labels must be tensors, got {type(preds).__name__} and {type(labels).__name__}; use "
            "torch.as_tensor(…)."
        )
    if samples is not None:
        return whole_number("samples", samples)
    if not isinstance(labels, torch.Tensor):
        got = "neither labels nor samples=…" if labels is None else f"labels that are a {type(labels).__name__}"
        raise UsageError(f"A tracked step must come with its number of samples, got {got}; pass samples=…")
    rows = as_plain(labels)
    try:
        count = int(rows.size(0)) if rows.dim() else None
    except Exception:  # a tensor that stands for others may not know
        return None
    if count is None:
        raise UsageError(
            "A tracked step must come with its number of samples, got labels of no dimension; pass samples=…"
        )
    return count


def whole_number(name: str, count: Any) -> int:
    """Return the number, which fits a record; tensors are rejected, as reading one would wait for the device."""
    if not isinstance(count, bool | torch.Tensor):
        try:
            number = operator.index(count)
        except TypeError:
            number = -1
        if 0 <= number <= MAX_INT64:
            return number
    raise UsageError(f"`{name}` must be a whole number from 0 to 2**63 - 1, got {count!r}; pass int(…) of a tensor.")


def require_64_bits(counts: Mapping[str, int]) -> None:
    """Raise `UsageError` for a sum that no record can hold."""
    for name, count in counts.items():
        if count > MAX_INT64:
            raise UsageError(f"The `{name}` of an epoch must be at most 2**63 - 1, got {count}; count smaller steps.")
