"""The `state` of a custom loop, loaders among it: whatever has a state that a checkpoint can store, checked first."""

import copy
import io
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from runmanager.errors import UsageError

_RESERVED = "model"


_FINISHED = "_iterator_finished"  # in the state of torchdata's loader


def is_loader(value: Any) -> bool:
    """Return whether `value` can be iterated and has a state of its own."""
    has_state = hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
    return has_state and isinstance(value, Iterable) and not isinstance(value, torch.nn.Module | Mapping)


def loader_generators(loader: Any) -> list[torch.Generator]:
    """Return the random generators of a loader and its sampler, each once."""
    samplers = (getattr(loader, "sampler", None), getattr(getattr(loader, "batch_sampler", None), "sampler", None))
    found = [getattr(each, "generator", None) for each in (loader, *samplers)]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())


class LoaderState:
    """The state of `loader`, with that of its generators.

    A `DataLoader` without a generator draws from the global one whenever it is iterated, and a resumed run iterates
    once more than an uninterrupted one: so it gets a generator of its own.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._is_handed_out = False
        if isinstance(loader, DataLoader) and loader.generator is None:
            loader.generator = torch.Generator().manual_seed(torch.initial_seed())
        self._generators = loader_generators(loader)

    def handed_out(self, loader: Any) -> bool:
        """Return whether this is the loader, which from now on is known to begin again with each epoch."""
        self._is_handed_out = self._is_handed_out or loader is self._loader
        return loader is self._loader

    def state_dict(self, *, within_epoch: bool) -> dict[str, Any]:
        """Return the state; `within_epoch` if a loader that was handed out must continue where it is."""
        state = self._loader.state_dict()
        is_over = self._is_handed_out and not within_epoch
        begins_again = is_over or (isinstance(state, Mapping) and bool(state.get(_FINISHED)))
        generators = [each.get_state() for each in self._generators]
        return {"loader": state, "begins_again": begins_again, "generators": generators}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; workers may start."""
        self._loader.load_state_dict(state["loader"])
        if state["begins_again"]:
            iter(self._loader)  # the first iterator only replays what was read
        else:
            self._loader.state_dict()  # makes the iterator that the loop continues with, which draws random numbers
        for generator, its_state in zip(self._generators, state["generators"], strict=True):
            generator.set_state(its_state)


class CustomState:
    """The objects of `state` by name, saved and restored together.

    An object has `state_dict()` and `load_state_dict()`, or is a `torch.Generator`. Loaders with a state are restored
    last, because reading from them may draw random numbers. `optimizer` is included under its own name, unless it is
    one of the objects; so are the generators of `loader`, the run's loader.
    Raises `UsageError` for anything else, and for a state that `torch.load(weights_only=True)` would refuse.
    """

    def __init__(
        self, state: Mapping[str, Any], *, optimizer: torch.optim.Optimizer | None = None, loader: Any = None
    ) -> None:
        self._objects = _checked_names(state)
        if optimizer is not None and not any(each is optimizer for each in self._objects.values()):
            if "optimizer" in self._objects:
                raise UsageError(
                    "Entry 'optimizer' of `state` must be the run's `optimizer`, got another object; add both under "
                    "other names."
                )
            self._objects["optimizer"] = optimizer
        self._loaders = {name: LoaderState(each) for name, each in self._objects.items() if is_loader(each)}
        self._generators = [] if is_loader(loader) else loader_generators(loader)
        self._is_checked = False
        self._steps: _Steps | None = None
        for name in self._objects:
            if name not in self._loaders:  # the state of a new loader may start workers
                _refuse_unloadable(name, self._state_of(name, within_epoch=False))

    def state_dict(self, *, within_epoch: bool = False, with_loaders: bool = True) -> dict[str, Any]:
        """Return the states by name; `within_epoch` if loaders that are being read must continue where they are.

        The first call raises `UsageError` for a state that `torch.load(weights_only=True)` would refuse.
        """
        names = [name for name in self._objects if with_loaders or name not in self._loaders]
        states = {name: self._state_of(name, within_epoch=within_epoch) for name in names}
        if with_loaders and not self._is_checked:  # an optimizer's state is complete after the first steps
            for name, state in states.items():
                _refuse_unloadable(name, state)
            self._is_checked = True
        return {"entries": states, "generators": [each.get_state() for each in self._generators]}

    def _state_of(self, name: str, *, within_epoch: bool) -> Any:
        if name in self._loaders:
            return self._loaders[name].state_dict(within_epoch=within_epoch)
        each = self._objects[name]
        return each.get_state() if isinstance(each, torch.Generator) else each.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned. Raises `UsageError`, naming the entry, for one that does not fit."""
        entries, generators = state["entries"], state["generators"]
        missing = [name for name in self._objects if name not in entries and name not in self._loaders]
        if missing or not entries.keys() <= self._objects.keys():
            raise UsageError(f"`state` had the entries {_listed(entries)}, and has {_listed(self._objects)}")
        for name in sorted(entries, key=self._loaders.__contains__):
            try:
                self._load(name, entries[name])
            except Exception as error:
                raise UsageError(f"entry {name!r}: {error}") from error
        for generator, its_state in zip(self._generators, generators, strict=True):
            generator.set_state(its_state)

    def _load(self, name: str, state: Any) -> None:
        each = self._objects[name]
        if name in self._loaders:
            self._loaders[name].load_state_dict(state)
        elif isinstance(each, torch.Generator):
            each.set_state(state)
        else:
            each.load_state_dict(state)

    def weights(self) -> dict[str, Any]:
        """Return the states of the modules by name, for best.pt."""
        modules = {name: each for name, each in self._objects.items() if isinstance(each, torch.nn.Module)}
        return {name: module.state_dict() for name, module in modules.items()}

    def restores(self, value: Any) -> bool:
        """Return whether `value` is one of the objects, and has something to restore."""
        return any(each is value and bool(value.state_dict()) for each in self._objects.values())

    def resumes_within(self, loader: Any) -> bool:
        """Return whether an epoch over `loader` can continue after the step just made; call it after each step.

        The loader must be one of the objects. With optimizers among them one must have made a step since the last call:
        between the batches of which gradients are accumulated, the gradients would be lost.
        """
        if not any(each.handed_out(loader) for each in self._loaders.values()):
            return False
        if self._steps is None:
            self._steps = _Steps(each for each in self._objects.values() if isinstance(each, torch.optim.Optimizer))
        return self._steps.taken()


class _Steps:
    """Tells whether any of the optimizers has made a step."""

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        made = self._made = [False]

        def note(*_: Any) -> None:
            made[0] = True

        handles = [each.register_step_post_hook(note) for each in optimizers]
        self._is_watching = bool(handles)
        for handle in handles:
            weakref.finalize(self, handle.remove)

    def taken(self) -> bool:
        """Return whether there was a step since the last call; without optimizers, True."""
        taken = self._made[0] or not self._is_watching
        self._made[0] = False
        return taken


def _checked_names(state: Any) -> dict[str, Any]:
    if not isinstance(state, Mapping):
        raise UsageError(
            f"`state` must be a mapping of names to objects with a state, got {type(state).__name__}; as in "
            'state={"optimizer": optimizer}.'
        )
    for name, each in state.items():
        if not isinstance(name, str) or name == _RESERVED:
            raise UsageError(
                f"Names in `state` must be text other than {_RESERVED!r}, the network's own, got {name!r}; rename it."
            )
        methods = [getattr(each, method, None) for method in ("state_dict", "load_state_dict")]
        if isinstance(each, type) or not (all(map(callable, methods)) or isinstance(each, torch.Generator)):
            raise UsageError(
                f"Entry {name!r} of `state` must have state_dict() and load_state_dict(), got {type(each).__name__}; "
                "give it both methods, or leave it out."
            )
    return dict(state)


def _refuse_unloadable(name: str, state: Any) -> None:
    """Raise `UsageError` for a state that `torch.load(weights_only=True)` refuses, naming the first such type."""
    small = _without_tensors(state)
    if _is_loadable(small):
        return
    kinds = sorted({_full_name(each) for each in _leaves(small) if not _is_loadable(each)})
    raise UsageError(
        f"The state of entry {name!r} of `state` must hold plain values and tensors, got {' and '.join(kinds)}; "
        "convert it in state_dict()."
    )


def _is_loadable(value: Any) -> bool:
    file = io.BytesIO()
    try:
        torch.save(value, file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception:  # pickle and torch raise different errors
        return False
    return True


def _without_tensors(value: Any) -> Any:
    """Return nested plain values with an empty tensor in the place of each tensor."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return torch.empty(0)
    return _mapped(value, _without_tensors)


def plain_copy(value: Any) -> Any:
    """Return a deep copy of nested plain values, with tensors on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    copied = _mapped(value, plain_copy)
    return copy.deepcopy(value) if copied is value else copied


def _mapped(value: Any, function: Any) -> Any:
    """Return plain containers with `function` applied to their values; anything else as it is."""
    if isinstance(value, dict) and type(value).__module__ in ("builtins", "collections"):
        return {key: function(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(function(each) for each in value)
    return value


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _leaves(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _full_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
