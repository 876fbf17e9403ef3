"""Isolation of code that copies a network and calls the copies: the rest of the process sees no effect.

```
with isolated(network):
    meta_network, _ = copy_to_meta(network)
    meta_network(torch.empty(shape, device="meta"))
```
"""

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TextIO

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from runmanager.text import error_line
from runmanager.tracking.device.devices import preserve_random_states
from runmanager.tracking.torch_internals import CALL_HOOK_TABLES, GLOBAL_HOOK_TABLES, module_hooks

UNSEEN_BATCH = "a batch could not be looked at"
"""The beginning of the note on that, of which a run has one."""


class SharedModuleError(Exception):
    """A copy of a network shares a module with the original."""


@contextlib.contextmanager
def isolated(network: torch.nn.Module) -> Iterator[None]:
    """Let the body copy `network` and call the copies without side effects. Threads take turns.

    Random states, gradient mode and default dtype are restored; this thread's output and warnings are suppressed, and
    its calls run no hooks that were registered for all modules. Raises `SharedModuleError` if this thread calls a
    module of `network` itself that has hooks, or buffers such as BatchNorm's. A copy does that through a function bound
    to the original: `lambda x: self.norm(x)`, or one that replaced `self.norm.forward`.
    """
    stateful = {module for module in network.modules() if _has_hooks(module) or _has_buffers(module)}
    thread = threading.get_ident()

    def refuse(module: torch.nn.Module, _args: object) -> None:
        if (module in stateful or _has_replaced_forward(module)) and threading.get_ident() == thread:
            kind = type(module).__name__
            raise SharedModuleError(f"a copy of the model calls the original's {kind}, which has hooks or buffers")

    with quiet_thread(), preserve_random_states(), global_hooks_disabled(), _torch_modes_restored():
        handle = register_module_forward_pre_hook(refuse)
        try:
            yield
        finally:
            handle.remove()


@contextlib.contextmanager
def looking(notes: list[str]) -> Iterator[None]:
    """Let the body look at a batch or a loader, which may be anything: the run is as it would be without the look.

    Random states, gradient mode and default dtype are restored, output and warnings suppressed. An error ends the body,
    and becomes a note.
    """
    with quiet_thread(), preserve_random_states(), _torch_modes_restored(), torch.no_grad():
        try:
            yield
        except Exception as error:  # a program's batches, datasets and tensors may raise anything
            notes.append(f"{UNSEEN_BATCH} ({error_line(error)}): what it shows is missing")


def _has_hooks(module: torch.nn.Module) -> bool:
    return any(module_hooks(module, table) for table in CALL_HOOK_TABLES)


def _has_buffers(module: torch.nn.Module) -> bool:
    return any(True for _ in module.buffers(recurse=False))


def _has_replaced_forward(module: torch.nn.Module) -> bool:
    """Return whether a function replaced `forward` of a module with buffers: a deep copy keeps the same function."""
    return isinstance(vars(module).get("forward"), FunctionType) and _has_buffers(module)


@contextlib.contextmanager
def _torch_modes_restored() -> Iterator[None]:
    """Restore what a `forward` may set globally: the gradient mode and the default dtype."""
    has_gradients, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_grad_enabled(has_gradients)
        torch.set_default_dtype(dtype)


@contextlib.contextmanager
def global_hooks_disabled() -> Iterator[None]:
    """Disable, for this thread, all hooks registered so far for all modules or all optimisers."""
    thread = threading.get_ident()
    found = [(table, key, hook) for table in GLOBAL_HOOK_TABLES for key, hook in table.items()]
    for table, key, hook in found:
        table[key] = _for_other_threads(thread, hook)
    try:
        yield
    finally:
        for table, key, hook in found:
            if key in table:  # the body may have removed it
                table[key] = hook


def _for_other_threads(thread: int, hook: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return None if threading.get_ident() == thread else hook(*args, **kwargs)

    return call


_quiet_lock = threading.RLock()


def _renew_lock() -> None:
    global _quiet_lock
    _quiet_lock = threading.RLock()  # the old one may be held by a thread that the fork does not have


os.register_at_fork(after_in_child=_renew_lock)


@contextlib.contextmanager
def quiet_thread() -> Iterator[None]:
    """Suppress what this thread prints to `sys.stdout` and its warnings; other threads print and warn normally.

    One thread at a time, so that bodies may change and restore state of the whole process.
    """
    with _quiet_lock, _quiet_output(), _quiet_warnings():
        yield


@contextlib.contextmanager
def _quiet_output() -> Iterator[None]:
    original = sys.stdout
    replacement = _QuietStream(original)
    sys.stdout = replacement
    try:
        yield
    finally:
        replacement.thread = None  # code that saved this stream and restores it later loses no output
        if sys.stdout is replacement:
            sys.stdout = original


class _QuietStream:
    """Stream that discards what `thread` writes; with None it passes everything on."""

    def __init__(self, stream: TextIO) -> None:
        self.thread: int | None = threading.get_ident()
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def _quiet_warnings() -> Iterator[None]:
    """Ignore this thread's warnings, through a filter that matches in this thread only and is disabled afterwards.

    `warnings.catch_warnings` would restore the filters that it found and undo changes by other threads.
    """
    thread: int | None = threading.get_ident()

    class OfThread(type):
        def __subclasscheck__(cls, _category: type) -> bool:
            return threading.get_ident() == thread

    class AnyWarning(Warning, metaclass=OfThread):
        pass

    filters: Any = warnings.filters
    entry = ("ignore", None, AnyWarning, None, 0)
    filters.insert(0, entry)
    try:
        yield
    finally:
        thread = None
        with contextlib.suppress(ValueError):
            filters.remove(entry)
