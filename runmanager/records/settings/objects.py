"""Objects in settings whose text has an address, which differs from process to process: what they are without it."""

import functools
import hashlib
import types
from collections.abc import Callable
from typing import Any

__all__ = ["object_settings", "qualified_name"]

_LEAVES = (str, bytes, int, float, complex, bool, types.NoneType)


def object_settings(value: Any) -> Any:
    """Return what an object consists of, for settings; None if that is not known, or may be large.

    A `functools.partial` and a bound method have their function and arguments, a lambda or another local function its
    name and a digest of its code and of the values that it uses, and an object the name of its class and its
    attributes. Two objects that differ have different settings, so that their cells do.
    """
    if isinstance(value, functools.partial):
        return {"function": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, types.MethodType):
        return {"function": value.__func__, "args": [value.__self__]}
    if isinstance(value, types.FunctionType):
        return _local_function(value)
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict) or not all(isinstance(each, _LEAVES) for each in attributes.values()):
        return None
    return {"class": qualified_name(type(value)), **attributes}


def qualified_name(value: Callable[..., Any]) -> str:
    """Return the name of a function or class with that of its module."""
    return ".".join(filter(None, (value.__module__, value.__qualname__)))


def _local_function(function: types.FunctionType) -> str | None:
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    try:
        used = [*defaults, *(cell.cell_contents for cell in function.__closure__ or ())]
    except ValueError:  # a name that has no value yet
        return None
    texts = [_leaf_text(each) for each in used]
    if None in texts:
        return None
    digest = hashlib.sha256(repr((_code_texts(function.__code__), texts)).encode()).hexdigest()
    return f"{qualified_name(function)} with code of sha256 {digest[:16]}"


def _code_texts(code: types.CodeType) -> list[Any]:
    """What a function does, without the lines that it stands in."""
    constants = (_code_texts(each) if isinstance(each, types.CodeType) else _constant(each) for each in code.co_consts)
    return [code.co_code, code.co_names, code.co_varnames, *constants]


def _constant(value: Any) -> str:
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def _leaf_text(value: Any) -> str | None:
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return None if "<" in value.__qualname__ else qualified_name(value)
    if isinstance(value, tuple):
        return repr(texts) if None not in (texts := [_leaf_text(each) for each in value]) else None
    return repr(value) if isinstance(value, _LEAVES) else None
