"""Hooks that somebody hung on modules: none is called by the copies that are looked at in a network's place."""

import copy
import threading
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

__all__ = ["has_hooks", "held_back", "left_out"]

_CALLED = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OF_STATES = ("_state_dict_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
_ON_ALL: tuple[dict[int, Any], ...] = (
    modules._global_forward_pre_hooks,
    modules._global_forward_hooks,
    modules._global_backward_pre_hooks,
    modules._global_backward_hooks,
    optimizers._global_optimizer_pre_hooks,
    optimizers._global_optimizer_post_hooks,
)


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether a call of the module, or its backward pass, calls hooks of its own."""
    return any(vars(module).get(table) for table in _CALLED)


@contextmanager
def left_out(network: torch.nn.Module, memo: dict[int, Any]) -> Iterator[None]:
    """A deep copy of `network` with `memo`, made meanwhile, has no hooks but those without which it computes otherwise.

    These are PyTorch's own, as of `weight_norm` or a lazy layer, and methods of the network's modules, which become
    methods of the copy. Of the others nobody knows what they keep or tell: a plain function is copied as itself.
    """
    parts = set(network.modules())
    found = [
        (part, table, hooks) for part in parts for table in (*_CALLED, *_OF_STATES) if (hooks := vars(part).get(table))
    ]
    for _, _, hooks in found:
        memo[id(hooks)] = type(hooks)()
    yield
    for part, table, hooks in found:  # now that the copies are there whose methods some are
        of_copy = memo[id(hooks)]
        # Nobody asks a copy for its state; and a wrapper has no copy of its own.
        if table in _CALLED and vars(memo.get(id(part), part)).get(table) is of_copy:
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
def held_back() -> Iterator[None]:
    """Meanwhile this thread calls no hook that was hung on all modules, or on all optimisers, before."""
    thread = threading.get_ident()
    found = [(table, key, hook) for table in _ON_ALL for key, hook in table.items()]
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
