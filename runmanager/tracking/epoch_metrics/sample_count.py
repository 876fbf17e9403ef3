"""The number of samples of a tracked step, and other counts that a program passes."""

import operator
from collections.abc import Mapping
from typing import Any

import torch

from runmanager.errors import UsageError
from runmanager.records.files.whole_numbers import MAX_INT64

__all__ = ["num_samples", "require_64_bits", "whole_number"]


def num_samples(preds: torch.Tensor | None, labels: torch.Tensor | None, samples: int | None) -> int:
    """Return `samples`, by default the number of rows of labels.

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
    if labels is None or not labels.ndim:
        got = "neither labels nor samples=…" if labels is None else "labels of no dimension; pass samples=…"
        raise UsageError(f"A tracked step must come with its number of samples, got {got}")
    return int(labels.shape[0])


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
