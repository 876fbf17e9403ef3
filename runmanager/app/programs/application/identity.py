"""The configuration of a Hydra application's cell as it counts: the same tomorrow and in another folder."""

import datetime
import dis
import inspect
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError

from runmanager.launching.hydra_internals import (
    copy_without_hydra,
    get_node,
    hydra_config_set,
    is_none,
    raw_value,
    register_resolver,
    resolvers,
)
from runmanager.records.settings.values import flatten, plain_settings

_OUTSIDE = ("hydra", "now", "oc.env")
"""Resolvers whose values differ between runs of one cell: they count by their text."""

_VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:\s*['\"]?(\w+)")
_CHOICE = "runtime.choices."


_MAX_DEPTH = 3  # of functions that call each other
_READERS = {
    time: ("time", "time_ns", "localtime", "gmtime", "strftime", "ctime", "asctime", "monotonic", "perf_counter"),
    datetime: ("now", "today", "utcnow"),
    datetime.datetime: ("now", "today", "utcnow"),
    datetime.date: ("today",),
}
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
_IMPORTERS = {"__import__", "import_module"}


@lru_cache
def reads_clock(resolver: Callable[..., Any]) -> bool:
    """Whether the code of a resolver, as OmegaConf keeps it, or of a function that it calls names a clock of Python.

    The code is read and not run: a date is the same all day, so a second call would show nothing.
    """
    inner = inspect.getclosurevars(resolver).nonlocals.get("resolver", resolver) if _has_code(resolver) else resolver
    return _reads(inner, _MAX_DEPTH)


def _has_code(value: Any) -> bool:
    return isinstance(value, FunctionType)


def _reads(function: Any, depth: int) -> bool:
    if not _has_code(function):
        return _is_reader(function)
    return any(_code_reads(code, function.__globals__, depth) for code in _codes(function.__code__))


def _is_reader(function: Any) -> bool:
    """Whether a function without Python code is one of those of `_READERS`, such as `datetime.date.today`."""
    owner = getattr(function, "__self__", None)
    if not isinstance(owner, ModuleType | type) or owner not in _READERS:
        return False
    return getattr(function, "__name__", "") in _READERS[owner]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _code_reads(code: CodeType, names: dict[str, Any], depth: int) -> bool:
    steps = [(each.opname, each.argval) for each in dis.get_instructions(code)]
    attributes = {name for step, name in steps if step in _ATTRIBUTES}
    imported = {name for step, name in steps if step == "IMPORT_NAME"}
    if _IMPORTERS & set(code.co_names):
        imported |= {each for each in code.co_consts if isinstance(each, str)}
    used = [names[name] for name in code.co_names if name in names]
    used += [module for module in (time, datetime) if module.__name__ in imported]
    for value in used:
        if isinstance(value, ModuleType | type) and value in _READERS:
            if attributes.intersection(_READERS[value]):
                return True
        elif _is_reader(value) or (depth > 1 and _has_code(value) and _reads(value, depth - 1)):
            return True
    return False


@dataclass
class Identity:
    """A cell's settings as they count, nested and plain, with the environment variables that they read by dotted name.

    `derived` are the dotted names of those whose values are interpolations.

    An interpolation counts by its value, but by its text if it leads to Hydra's runtime, the clock, or the environment,
    directly or through others, or if it has another value when it is resolved again. `faults` are messages on settings
    that are missing or cannot be resolved.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, list[str]] = field(default_factory=dict)
    derived: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def read_identity(config: DictConfig) -> Identity:
    """Return what counts of a composed cell, and what is wrong with it."""
    copy = copy_without_hydra(config)
    identity = Identity()
    walk = _Walk(copy, identity)
    with _outside_resolvers_cleared(config):
        settings = walk.mapping(copy)
    identity.settings = plain_settings(settings)
    identity.faults += _unresolvable(config, walk.unresolved, is_complete=not identity.faults)
    return identity


@contextmanager
def _outside_resolvers_cleared(config: DictConfig) -> Iterator[None]:
    known = resolvers()
    outside = [name for name, resolver in known.items() if name in _OUTSIDE or reads_clock(resolver)]
    earlier = {name: known.pop(name) for name in outside}
    register_resolver("hydra", partial(_choice, config))
    try:
        yield
    finally:
        known.pop("hydra", None)
        known.update(earlier)


def _choice(config: DictConfig, key: str) -> Any:
    """Resolve `${hydra:runtime.choices.GROUP}`, the only value of Hydra's that decides what a cell computes."""
    if not key.startswith(_CHOICE):
        raise KeyError(key)
    return config.hydra.runtime.choices[key.removeprefix(_CHOICE)]


class _Walk:
    """Reads the nodes of a configuration without Hydra's settings.

    `unresolved` has the names of the interpolations that have no value without a run.
    """

    def __init__(self, root: DictConfig, identity: Identity) -> None:
        self._root = root
        self._identity = identity
        self.unresolved: list[str] = []

    def mapping(self, node: DictConfig, prefix: str = "") -> dict[str, Any]:
        return {str(key): self._value(node, key, f"{prefix}{key}") for key in list(node)}

    def _list(self, node: ListConfig, name: str) -> list[Any]:
        return [self._value(node, index, f"{name}[{index}]") for index in range(len(node))]

    def _value(self, parent: DictConfig | ListConfig, key: Any, name: str) -> Any:
        if OmegaConf.is_missing(parent, key):
            word = re.sub(r"\[(\d+)\]", r".\1", name)  # as Hydra names an element of a list
            self._identity.faults.append(f"`{name}` must be given, got nothing; add `{word}=…`.")
            return None
        node = get_node(parent, key)
        if not OmegaConf.is_interpolation(parent, key):
            return self._plain(node, name)
        text = str(raw_value(node))
        if variables := _VARIABLE.findall(text):
            self._identity.variables[name] = variables
        value = self._resolved(parent, key, name, text)
        self._identity.derived += flatten({name: value})
        return value

    def _plain(self, node: Any, name: str) -> Any:
        if isinstance(node, DictConfig):
            return None if is_none(node) else self.mapping(node, f"{name}.")
        if isinstance(node, ListConfig):
            return None if is_none(node) else self._list(node, name)
        return raw_value(node)

    def _resolved(self, parent: DictConfig | ListConfig, key: Any, name: str, text: str) -> Any:
        try:
            first, second = self._resolve(parent, key, name), self._resolve(parent, key, name)
        except Exception:  # a resolver of the application may raise anything
            self.unresolved.append(name)
            return text
        return first if repr(first) == repr(second) else text

    def _resolve(self, parent: Any, key: Any, name: str) -> Any:
        OmegaConf.clear_cache(self._root)  # of resolvers that are called once for each configuration
        value = parent[key]
        return self._plain(value, name) if OmegaConf.is_config(value) else value


def _unresolvable(config: DictConfig, names: Sequence[str], *, is_complete: bool) -> list[str]:
    """Return a fault for each setting that has no value in a run either, where Hydra's resolvers have theirs.

    In a configuration that is not complete, what follows from a missing setting is not a fault of its own.
    """
    faults = []
    with hydra_config_set(config):
        for name in names:
            try:
                OmegaConf.select(config, name)
            except Exception as error:  # a resolver of the application may raise anything
                if isinstance(error, InterpolationToMissingValueError) and not is_complete:
                    continue
                first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
                faults.append(f"`{name}` must have a value, got an interpolation that fails: {first}.")
    return faults
