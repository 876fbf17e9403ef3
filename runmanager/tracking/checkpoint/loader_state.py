"""The state of a loader with `state_dict`, as torchdata's `StatefulDataLoader`, and the generators of any loader."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

__all__ = ["LoaderState", "is_loader", "loader_generators"]

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
