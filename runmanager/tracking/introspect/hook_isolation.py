"""Hooks that somebody hung on modules: none is called by the copies that are looked at in a network's place."""

import copy
import threading
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from runmanager.tracking.torch_internals import (
    CALL_HOOK_TABLES,
    GLOBAL_HOOK_TABLES,
    STATE_DICT_HOOK_TABLES,
    module_hooks,
)

__all__ = ["global_hooks_disabled", "has_hooks", "left_out"]


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether a call of the module, or its backward pass, calls hooks of its own."""
    return any(module_hooks(module, table) for table in CALL_HOOK_TABLES)


@contextmanager
def left_out(network: torch.nn.Module, memo: dict[int, Any]) -> Iterator[None]:
    """A deep copy of `network` with `memo`, made meanwhile, has no hooks but those without which it computes otherwise.

    These are PyTorch's own, as of `weight_norm` or a lazy layer, and methods of the network's modules, which become
    methods of the copy. Of the others nobody knows what they keep or tell: a plain function is copied as itself.
    """
    parts = set(network.modules())
    found = [
        (part, table, hooks)
        for part in parts
        for table in (*CALL_HOOK_TABLES, *STATE_DICT_HOOK_TABLES)
        if (hooks := module_hooks(part, table))
    ]
    for _, _, hooks in found:
        memo[id(hooks)] = type(hooks)()
    yield
    for part, table, hooks in found:  # now that the copies are there whose methods some are
        of_copy = memo[id(hooks)]
        # Nobody asks a copy for its state; and a wrapper has no copy of its own.
        if table in CALL_HOOK_TABLES and module_hooks(memo.get(id(part), part), table) is of_copy:
            of_copy.update(copy.deepcopy({key: each for key, each in hooks.items() if _is_needed(each, parts)}, memo))


def _is_needed(hook: Any, parts: Set[torch.nn.Module]) -> bool:
    while isinstance(hook, partial):
        hook = hook.func
    owner = getattr(hook, "__self__", hook)
    if isinstance(owner, torch.nn.Module):
        return owner in parts
    code = hook if hasattr(hook, "__name__") else type(hook).__call__
    return (getattr(code, "__module__", None) or "").partition(".")[0] == "torch"


@contextmanager
def global_hooks_disabled() -> Iterator[None]:
    """Meanwhile this thread calls no hook that was hung on all modules, or on all optimisers, before."""
    thread = threading.get_ident()
    found = [(table, key, hook) for table in GLOBAL_HOOK_TABLES for key, hook in table.items()]
    for table, key, hook in found:
        table[key] = _for_others_than(thread, hook)
    try:
        yield
    finally:
        for table, key, hook in found:
            if key in table:  # whoever hung it there may have taken it away meanwhile
                table[key] = hook


def _for_others_than(thread: int, hook: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return None if threading.get_ident() == thread else hook(*args, **kwargs)

    return call
