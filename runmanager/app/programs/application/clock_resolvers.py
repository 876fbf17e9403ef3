"""Resolvers of an application that read the clock, however coarse the steps of their values are."""

import datetime
import dis
import inspect
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

__all__ = ["reads_clock"]

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
