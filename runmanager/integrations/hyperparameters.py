"""Settings of a run from the hyperparameters that a framework knows."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import torch

from runmanager.records.settings.values import plain_settings

__all__ = ["settings_of_hyperparameters"]


def settings_of_hyperparameters(given: Any) -> dict[str, Any]:
    """Return hyperparameters as settings: numbers, text, lists and mappings of them, and functions by their name.

    Other objects, such as modules, are left out: their text may hold an address, which differs in each run. So are
    names that begin with `_`.
    """
    mapping = given if isinstance(given, Mapping) else vars(given)
    kept = {str(name): _kept(value) for name, value in mapping.items() if not str(name).startswith("_")}
    return plain_settings({name: value for name, value in kept.items() if value is not _DROPPED})


_DROPPED = object()


def _kept(value: Any) -> Any:
    if isinstance(value, Mapping):
        parts = {str(name): _kept(each) for name, each in value.items()}
        return {name: each for name, each in parts.items() if each is not _DROPPED}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        parts_of = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [each for part in parts_of if (each := _kept(part)) is not _DROPPED]
    is_number = hasattr(value, "item") and getattr(value, "ndim", None) == 0
    if value is None or isinstance(value, bool | int | float | str) or is_number:
        return value
    if isinstance(value, PurePath | torch.device | torch.dtype):
        return str(value)
    if callable(value) and hasattr(value, "__qualname__") and "<" not in value.__qualname__:
        return f"{value.__module__}.{value.__qualname__}"
    return _DROPPED
