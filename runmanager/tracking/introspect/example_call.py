"""How a network is called with one sample of a loader's batch."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runmanager.tracking.introspect.model_copy import unwrap

__all__ = ["NetworkCall", "example_call"]

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class NetworkCall:
    """The arguments of a call, each tensor of one sample alone; `names` are those that `forward` has for `args`."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()


def example_call(network: torch.nn.Module, batch: Any) -> NetworkCall | None:
    """The call that a training loop would make of a batch; None where the batch holds no tensors for it.

    A batch's first part goes in, as in (images, labels). Of a `forward` that must be given several arguments they are
    the parts of that first part, or else the batch's first parts, as in (left, right, labels). A mapping is given by
    name: what of it `forward` takes.
    """
    must, names = _parameters(unwrap(network))
    args, kwargs = _arguments(batch, must, names)
    sample = NetworkCall(_first(args), _first(kwargs), (*names, *("input" for _ in args))[: len(args)])
    return sample if _has_samples([*sample.args, *sample.kwargs.values()]) else None


def _arguments(batch: Any, must: int, names: tuple[str, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(batch, Mapping):
        return (), {name: part for name, part in batch.items() if name in names}
    if not isinstance(batch, Sequence) or not batch:
        return (batch,), {}
    first = batch[0]
    if isinstance(first, Mapping) and first and set(first).issubset(names):
        return (), dict(first)
    if must > 1:
        parts = first if isinstance(first, Sequence) else batch
        return tuple(parts[:must]), {}
    return (first,), {}


def _parameters(network: torch.nn.Module) -> tuple[int, tuple[str, ...]]:
    """How many arguments `forward` must be given by place, and the names of all that it takes."""
    try:
        taken = inspect.signature(network.forward).parameters
    except (TypeError, ValueError):  # one that was not written in Python
        return 1, ()
    must = [each for each in taken.values() if each.kind in _BY_PLACE and each.default is inspect.Parameter.empty]
    return len(must), tuple(taken)


def _first(value: Any) -> Any:
    """The first sample's part of every tensor."""
    if isinstance(value, torch.Tensor):
        return value[:1].detach() if value.ndim else value.detach()
    if isinstance(value, Mapping):
        return {name: _first(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_first(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _has_samples(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return any(map(_has_samples, value))
    return isinstance(value, torch.Tensor) and value.numel() > 0
