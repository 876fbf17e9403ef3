"""Deep copies of a network that are called in its place, so that nothing about it changes: with and without data.

```
with unnoticed(network):
    twin, _ = without_data(network)
    twin(torch.empty(shape, device="meta"))
```
"""

import contextlib
import copy
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from types import FunctionType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from runmanager.tracking.device.rng import preserve_random_states
from runmanager.tracking.introspect.hook_isolation import global_hooks_disabled, has_hooks, left_out
from runmanager.tracking.introspect.op_recorder import iter_parts
from runmanager.tracking.introspect.quiet_thread import quiet_thread
from runmanager.tracking.torch_internals import compiled_module

__all__ = ["SharedModuleError", "copy_to_meta", "copy_with_data", "isolated", "unwrap"]

_ON_META: dict[str, Any] = {"device": torch.device("meta")}  # an argument that torch's types for lazy buffers leave out
_ATOMS = frozenset({str, bytes, int, float, bool, type(None)})
_WRAPPERS = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)


class SharedModuleError(Exception):
    """A copy of a model is not one throughout."""


def unwrap(network: torch.nn.Module) -> torch.nn.Module:
    """What `torch.compile` or a data-parallel wrapper holds; any other network is what it is."""
    inner = network.module if isinstance(network, _WRAPPERS) else compiled_module(network)
    return network if inner is None else unwrap(inner)


@contextlib.contextmanager
def isolated(network: torch.nn.Module) -> Iterator[None]:
    """The body may copy `network` and call the copies, and nobody learns of it; threads take turns.

    Random states, warnings and lines of output are kept back, and the hooks that somebody hung on all modules. Raises
    `SharedModuleError` where this thread calls a module of `network` itself that keeps something, as BatchNorm does, or has
    hooks: a copy can do that by a function that knows the network, as `lambda x: self.norm(x)`, or as one that was put
    in the place of `self.norm.forward`.
    """
    noticing = {module for module in network.modules() if has_hooks(module) or _keeps_something(module)}
    thread = threading.get_ident()

    def refuse(module: torch.nn.Module, _args: object) -> None:
        if (module in noticing or _is_called_by_a_function(module)) and threading.get_ident() == thread:
            raise SharedModuleError(
                f"a copy of it calls its own {type(module).__name__}, which would keep or tell something"
            )

    with quiet_thread(), preserve_random_states(), global_hooks_disabled(), _modes():
        handle = register_module_forward_pre_hook(refuse)
        try:
            yield
        finally:
            handle.remove()


@contextlib.contextmanager
def _modes() -> Iterator[None]:
    """Put back what a `forward` may set for the whole process or thread: whether gradients are taken, and the dtype."""
    takes_gradients, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_grad_enabled(takes_gradients)
        torch.set_default_dtype(dtype)


def _keeps_something(module: torch.nn.Module) -> bool:
    return any(True for _ in module.buffers(recurse=False))


def _is_called_by_a_function(module: torch.nn.Module) -> bool:
    """Whether somebody put a function in the place of its `forward`: it is copied as itself, with whom it calls."""
    return isinstance(vars(module).get("forward"), FunctionType) and _keeps_something(module)


def copy_with_data(network: torch.nn.Module) -> torch.nn.Module:
    """A deep copy on the same device, all wrappers within it taken off, without the hooks of others.

    Raises `SharedModuleError` where a module says of itself how it is copied, and is not.
    """
    memo = _memo(network, in_place_of_computed=lambda tensor: tensor.detach().clone())
    twin: torch.nn.Module
    (twin,) = _copied(network, (network,), memo)
    return twin


def copy_to_meta(
    network: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> tuple[torch.nn.Module, torch.optim.Optimizer | None]:
    """Copies as by `copy_with_data`, but on the `meta` device: parameters and buffers hold no data.

    The optimiser has the copy's parameters, and no hooks either.
    """
    memo = _memo(network, in_place_of_computed=lambda tensor: torch.empty_like(tensor, **_ON_META))
    for parameter in network.parameters():
        memo[id(parameter)] = _parameter_without_data(parameter)
    for buffer in network.buffers():
        lazy = torch.nn.parameter.is_lazy(buffer)
        memo[id(buffer)] = UninitializedBuffer(**_ON_META) if lazy else torch.empty_like(buffer, **_ON_META)
    if optimizer is not None:
        memo[id(optimizer.state)] = defaultdict(dict)  # moments are as large as the model
    twin, twin_optimizer = _copied(network, (network, optimizer), memo)
    return twin, twin_optimizer


def _copied(network: torch.nn.Module, what: tuple[Any, ...], memo: dict[int, Any]) -> tuple[Any, ...]:
    with left_out(network, memo):
        _take_off_wrappers(network, memo)
        twins = copy.deepcopy(what, memo)
    if shared := set(twins[0].modules()).intersection(network.modules()):
        raise SharedModuleError(f"a copy of it has the same {type(next(iter(shared))).__name__}")
    return twins


def _memo(network: torch.nn.Module, *, in_place_of_computed: Callable[[torch.Tensor], torch.Tensor]) -> dict[int, Any]:
    """What a deep copy is to have in the place of some of what modules hold.

    PyTorch does not copy a tensor that was computed of weights: other weights, made by a hook before each call, as
    `weight_norm` does, or in `forward`; or outputs. And a vocabulary of a million entries is copied at once, not one by
    one.
    """
    memo: dict[int, Any] = {}
    held: list[Any] = []
    memo[id(memo)] = held  # as `deepcopy` does, so that nothing else gets the identity of what is in the memo
    seen: dict[int, Any] = {}
    left: list[Any] = [vars(module) for module in network.modules()]
    while left:  # as deep as a copy goes, and each object once: they may hold one another in any number of ways
        value = left.pop()
        if _is_atom(value) or id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            copied = None if value.is_leaf else in_place_of_computed(value)
        else:
            copied = _copied_at_once(value)
            if copied is None:
                left.extend(iter_parts(value))
        if copied is not None:
            memo[id(value)] = copied
            held.append(value)
    return memo


def _copied_at_once(value: Any) -> Any:
    """A copy of a container that holds nothing that would have to be copied itself; None of any other object."""
    if type(value) is dict:
        inside: Iterable[Any] = chain(value, value.values())
    elif type(value) in (list, set):
        inside = value
    else:
        return None
    return value.copy() if all(map(_is_atom, inside)) else None


def _is_atom(value: Any) -> bool:
    """Whether a deep copy of it is itself."""
    return type(value) in _ATOMS or (type(value) is tuple and all(map(_is_atom, value)))


def _take_off_wrappers(network: torch.nn.Module, memo: dict[int, Any]) -> None:
    """Let what is copied hold, in a wrapper's place, a copy of what that wraps: compiled code cannot be followed."""
    for module in network.modules():
        if (inner := unwrap(module)) is not module:
            memo[id(module)] = copy.deepcopy(inner, memo)


def _parameter_without_data(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    if torch.nn.parameter.is_lazy(parameter):
        return UninitializedParameter(requires_grad=parameter.requires_grad, **_ON_META)
    return torch.nn.Parameter(torch.empty_like(parameter, **_ON_META), requires_grad=parameter.requires_grad)
