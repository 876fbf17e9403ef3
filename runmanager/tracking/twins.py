"""Deep copies of a network that are looked at in its place, so that nothing about it changes: with and without data."""

import copy
from collections import defaultdict
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

__all__ = ["unwrapped", "with_data", "without_data"]

_ON_META: dict[str, Any] = {"device": torch.device("meta")}  # an argument that torch's types for lazy buffers leave out
_WRAPPERS = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)


def unwrapped(network: torch.nn.Module) -> torch.nn.Module:
    """What `torch.compile` or a data-parallel wrapper holds; any other network is what it is."""
    inner = network.module if isinstance(network, _WRAPPERS) else getattr(network, "_orig_mod", network)
    assert isinstance(inner, torch.nn.Module)
    return inner if inner is network else unwrapped(inner)


def with_data(network: torch.nn.Module) -> torch.nn.Module:
    """A deep copy on the same device, all wrappers within it taken off."""
    memo: dict[int, Any] = {}
    _take_off_wrappers(network, memo)
    twin: torch.nn.Module = copy.deepcopy(network, memo)
    return twin


def without_data(
    network: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> tuple[torch.nn.Module, torch.optim.Optimizer | None]:
    """Deep copies on the `meta` device: parameters and buffers hold no data, and the optimiser has the copy's.

    Wrappers within the network are taken off.
    """
    memo: dict[int, Any] = {}
    for parameter in network.parameters():
        memo[id(parameter)] = _parameter_without_data(parameter)
    for buffer in network.buffers():
        lazy = torch.nn.parameter.is_lazy(buffer)
        memo[id(buffer)] = UninitializedBuffer(**_ON_META) if lazy else torch.empty_like(buffer, **_ON_META)
    _take_off_wrappers(network, memo)
    if optimizer is not None:
        memo[id(optimizer.state)] = defaultdict(dict)  # moments are as large as the model
    twins: tuple[torch.nn.Module, torch.optim.Optimizer | None] = copy.deepcopy((network, optimizer), memo)
    return twins


def _take_off_wrappers(network: torch.nn.Module, memo: dict[int, Any]) -> None:
    """Let what is copied hold, in a wrapper's place, a copy of what that wraps: compiled code cannot be followed."""
    for module in network.modules():
        if (inner := unwrapped(module)) is not module:
            memo[id(module)] = copy.deepcopy(inner, memo)


def _parameter_without_data(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    if torch.nn.parameter.is_lazy(parameter):
        return UninitializedParameter(requires_grad=parameter.requires_grad, **_ON_META)
    return torch.nn.Parameter(torch.empty_like(parameter, **_ON_META), requires_grad=parameter.requires_grad)
