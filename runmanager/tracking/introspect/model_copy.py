"""Deep copies of networks, without user hooks, with data or on `meta`, for calls within `isolated`; of arguments."""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, cast

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from runmanager.tracking.introspect.isolation import SharedModuleError
from runmanager.tracking.torch_internals import (
    CALL_HOOK_TABLES,
    STATE_DICT_HOOK_TABLES,
    compiled_module,
    flat_parameters,
    module_hooks,
    tree_leaves,
)

_ON_META: dict[str, Any] = {"device": torch.device("meta")}  # torch's types omit the argument for lazy buffers
_IMMUTABLE_TYPES = frozenset({str, bytes, int, float, bool, type(None)})
_MAX_DEPTH = 8  # of nested containers: objects may contain themselves
_WRAPPERS = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)


def unwrap(network: torch.nn.Module) -> torch.nn.Module:
    """Return the module inside wrappers of `torch.compile` and data parallelism; any other network as it is."""
    inner = network.module if isinstance(network, _WRAPPERS) else compiled_module(network)
    return network if inner is None else unwrap(inner)


def copy_with_data(network: torch.nn.Module) -> torch.nn.Module:
    """Deep-copy a network on its device, without wrappers or user hooks.

    Raises `SharedModuleError` if a module defines its own copying and shares a part with the original, `ValueError` for
    a network that is sharded over ranks.
    """
    memo = _memo(network, replace_computed=lambda tensor: tensor.detach().clone())
    copied: torch.nn.Module
    (copied,) = _deep_copy(network, (network,), memo)
    return copied


def copy_to_meta(
    network: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> tuple[torch.nn.Module, torch.optim.Optimizer | None]:
    """Copy network and optimiser as `copy_with_data` does, but to `meta`: parameters and buffers hold no data.

    The copied optimiser has the copy's parameters, empty state and no hooks.
    """
    memo = _memo(network, replace_computed=lambda tensor: torch.empty_like(tensor, **_ON_META))
    for parameter in network.parameters():
        memo[id(parameter)] = _meta_parameter(parameter)
    for buffer in network.buffers():
        is_lazy = torch.nn.parameter.is_lazy(buffer)
        memo[id(buffer)] = UninitializedBuffer(**_ON_META) if is_lazy else torch.empty_like(buffer, **_ON_META)
    if optimizer is not None:
        memo[id(optimizer.state)] = defaultdict(dict)  # moments are as large as the model
    meta_network, meta_optimizer = _deep_copy(network, (network, optimizer), memo)
    return meta_network, meta_optimizer


def _deep_copy(network: torch.nn.Module, values: tuple[Any, ...], memo: dict[int, Any]) -> tuple[Any, ...]:
    with _needed_hooks_only(network, memo):
        _remove_wrappers(network, memo)
        copies = copy.deepcopy(values, memo)
    if shared := set(copies[0].modules()).intersection(network.modules()):
        raise SharedModuleError(f"a copy of the model shares its {type(next(iter(shared))).__name__} with the original")
    return copies


@contextmanager
def _needed_hooks_only(network: torch.nn.Module, memo: dict[int, Any]) -> Iterator[None]:
    """Let a deep copy of `network` with `memo`, made in the body, have only the hooks that its results depend on.

    These are torch's own hooks, such as those of `weight_norm` and lazy layers, and methods of the network's modules,
    which become methods of the copy. Other hooks may have side effects: a deep copy keeps the same function.
    """
    modules = set(network.modules())
    found = [
        (module, table, hooks)
        for module in modules
        for table in (*CALL_HOOK_TABLES, *STATE_DICT_HOOK_TABLES)
        if (hooks := module_hooks(module, table))
    ]
    for _, _, hooks in found:
        memo[id(hooks)] = type(hooks)()
    yield
    for module, table, hooks in found:  # after the copying, as some hooks are methods of copied modules
        copied = memo[id(hooks)]
        # The state of a copy is never read, so its state hooks are not needed; and a wrapper has no copy.
        if table in CALL_HOOK_TABLES and module_hooks(memo.get(id(module), module), table) is copied:
            needed = {key: hook for key, hook in hooks.items() if _is_needed(hook, modules)}
            copied.update(copy.deepcopy(needed, memo))


def _is_needed(hook: Any, modules: Set[torch.nn.Module]) -> bool:
    while isinstance(hook, partial):
        hook = hook.func
    owner = getattr(hook, "__self__", hook)
    if isinstance(owner, torch.nn.Module):
        return owner in modules
    code = hook if hasattr(hook, "__name__") else type(hook).__call__
    return (getattr(code, "__module__", None) or "").partition(".")[0] == "torch"


def _memo(network: torch.nn.Module, *, replace_computed: Callable[[torch.Tensor], torch.Tensor]) -> dict[int, Any]:
    """Prepare the memo of a deep copy: replacements for objects that modules hold.

    PyTorch refuses to copy tensors that were computed from weights: weights that a hook computes before each call, as
    `weight_norm` does, or outputs that `forward` stored. Containers of immutable values are replaced by shallow copies,
    as a vocabulary may have a million entries. Raises `ValueError` for a network that is sharded over ranks.
    """
    if has_sharded_parameters(network):
        raise ValueError("its parameters are spread over several ranks, for which a copy of it would wait")
    memo: dict[int, Any] = {}
    held: list[Any] = []
    memo[id(memo)] = held  # as `deepcopy` does, so that the ids in the memo stay unique
    visited: dict[int, Any] = {}
    pending: list[Any] = [vars(module) for module in network.modules()]
    while pending:  # iterative and each object once: references may be deep and cyclic
        value = pending.pop()
        if _is_immutable(value) or id(value) in visited:
            continue
        visited[id(value)] = value
        if isinstance(value, torch.Tensor):
            copied = None if value.is_leaf else replace_computed(value)
        else:
            copied = _shallow_copy(value)
            if copied is None:
                pending.extend(_parts(value))
        if copied is not None:
            memo[id(value)] = copied
            held.append(value)
    return memo


def _shallow_copy(value: Any) -> Any:
    """Copy a container of immutable values; None for any other object."""
    if type(value) is dict:
        parts: Iterable[Any] = chain(value, value.values())
    elif type(value) in (list, set):
        parts = value
    else:
        return None
    return value.copy() if all(map(_is_immutable, parts)) else None


def _is_immutable(value: Any) -> bool:
    """Return whether a deep copy of the value is the value itself."""
    return type(value) in _IMMUTABLE_TYPES or (type(value) is tuple and all(map(_is_immutable, value)))


def _remove_wrappers(network: torch.nn.Module, memo: dict[int, Any]) -> None:
    """Replace wrappers within the network by a copy of what they wrap: compiled code cannot be followed."""
    for module in network.modules():
        if (inner := unwrap(module)) is not module:
            memo[id(module)] = copy.deepcopy(inner, memo)


def _meta_parameter(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    if torch.nn.parameter.is_lazy(parameter):
        return UninitializedParameter(requires_grad=parameter.requires_grad, **_ON_META)
    return torch.nn.Parameter(torch.empty_like(parameter, **_ON_META), requires_grad=parameter.requires_grad)


def replace_tensors(value: Any, replace: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Deep-copy nested containers and objects, with each of their tensors replaced. Raises `TypeError` for modules."""
    if any(isinstance(leaf, torch.nn.Module) for leaf in tree_leaves(value)):
        raise TypeError("a network is passed to it")
    return copy.deepcopy(value, {id(tensor): replace(tensor) for tensor in iter_tensors(value)})


def iter_tensors(value: Any, depth: int = _MAX_DEPTH) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested sequences, mappings and attributes of plain objects, up to a depth."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth:
        for part in _parts(value):
            yield from iter_tensors(part, depth - 1)


def _parts(value: Any) -> Iterable[Any]:
    """Return the elements of a sequence, the values of a mapping or the attributes of a plain object."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset):
        return value
    # Attributes of functions, classes and modules are not part of the value.
    return () if callable(value) else getattr(value, "__dict__", {}).values()


def num_parameters(network: torch.nn.Module) -> int | None:
    """Return the number of parameters of the whole network, frozen ones included.

    None while a lazy module has unknown shapes.
    """
    parameters = list(network.parameters())
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in parameters):
        return None
    flattened = flat_parameters(network)
    held = {id(each) for flat in flattened for each in flat.held}
    count = sum(parameter.numel() for parameter in parameters if id(parameter) not in held)  # a DTensor's is global
    return count + sum(flat.num_values for flat in flattened)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that this rank holds: what reads the others would wait for all ranks."""
    to_local: Any = getattr(tensor, "to_local", None)
    return tensor if to_local is None else cast(torch.Tensor, to_local())


def has_sharded_parameters(network: torch.nn.Module) -> bool:
    """Return whether other ranks may have parts of the network's parameters: a call of it waits for them."""
    return bool(flat_parameters(network)) or any(map(is_sharded, network.parameters()))


def is_sharded(tensor: torch.Tensor) -> bool:
    """Return whether the tensor may have parts in other ranks, as a `DTensor` has."""
    return hasattr(tensor, "to_local")
