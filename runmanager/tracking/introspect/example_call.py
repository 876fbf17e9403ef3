"""The call of a network that a training loop makes: guessed, with one sample of a batch, or as it was recorded."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runmanager.tracking.introspect.model_copy import unwrap
from runmanager.tracking.torch_internals import as_plain

__all__ = ["NetworkCall", "example_call", "recorded_call"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class NetworkCall:
    """Arguments of a call; `names` are the parameters of `forward` that `args` fill."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()


def example_call(network: torch.nn.Module, batch: Any) -> NetworkCall | None:
    """Guess the call for a batch; None if the batch has no tensors for it.

    The input is the batch's first part, as in (images, labels). If `forward` requires several arguments, they are the
    parts of that first part, or else the batch's first parts, as in (left, right, labels). A mapping passes what
    `forward` accepts by keyword, or itself if that is nothing.
    """
    num_required, names = _parameters(unwrap(network))
    args, kwargs = _arguments(batch, num_required, names)
    call = NetworkCall(_first_sample(args), _first_sample(kwargs), _names_of(args, names))
    return call if _has_samples([*call.args, *call.kwargs.values()]) else None


def recorded_call(network: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NetworkCall:
    """Return a call that was made with these arguments."""
    return NetworkCall(args, kwargs, _names_of(args, _parameters(unwrap(network))[1]))


def _names_of(args: Sequence[Any], names: Sequence[str]) -> tuple[str, ...]:
    return (*names, *("input" for _ in args))[: len(args)]


def _arguments(batch: Any, num_required: int, names: tuple[str, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(batch, Mapping):
        by_name = {name: part for name, part in batch.items() if name in names}
        return ((), by_name) if by_name or num_required != 1 else ((batch,), {})
    if not isinstance(batch, Sequence) or not batch:
        return (batch,), {}
    first = batch[0]
    if isinstance(first, Mapping) and first and set(first).issubset(names):
        return (), dict(first)
    if num_required > 1:
        parts = first if isinstance(first, Sequence) else batch
        return tuple(parts[:num_required]), {}
    return (first,), {}


def _parameters(network: torch.nn.Module) -> tuple[int, tuple[str, ...]]:
    """Return the number of required positional parameters of `forward`, and the names of all parameters."""
    try:
        parameters = inspect.signature(network.forward).parameters
    except (TypeError, ValueError):  # not written in Python
        return 1, ()
    required = [
        each for each in parameters.values() if each.kind in _POSITIONAL and each.default is inspect.Parameter.empty
    ]
    return len(required), tuple(parameters)


def _first_sample(value: Any) -> Any:
    """Reduce every tensor to its first sample, as far as it has one."""
    if isinstance(value, torch.Tensor):
        whole = as_plain(value).detach()
        return whole[:1] if whole.layout is torch.strided and not whole.is_nested and whole.dim() else whole
    if isinstance(value, Mapping):
        return {name: _first_sample(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_first_sample(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _has_samples(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return any(map(_has_samples, value))
    return isinstance(value, torch.Tensor) and as_plain(value).numel() > 0
