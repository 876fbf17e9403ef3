"""Settings of runs as plain values: conversion, objects, dotted names, differences, targets."""

import argparse
import builtins
import dataclasses
import dis
import functools
import hashlib
import json
import math
import re
import sys
import types
import uuid
from abc import ABC
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, Generic, TypeVar

from runmanager.errors import UsageError
from runmanager.records.settings.secrets import masked_settings, masked_words

_TARGET_KEY = "_target_"
_MAX_BITS = 1_023  # of a whole number: no larger one has a float
_MAX_LEVELS = 100  # of nested settings
_MAX_ELEMENTS = 10_000  # of an array, which is stored as its digest from there on


_LEAVES = (str, bytes, int, float, complex, bool, types.NoneType, types.EllipsisType)
_NAMED = (types.FunctionType, type)
_BUILTINS = (types.BuiltinFunctionType, types.MethodWrapperType)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_HEAP_TYPE = 1 << 9  # the flag of classes that Python code can define
_MAX_ITEMS = 1_000  # of a container that a function uses
_EMPTY_CLASSES = (object, Generic, ABC)
_READ_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
_READ_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_IMPORTS = "IMPORT_NAME"


def object_settings(value: Any, *, within: tuple[Any, ...] = ()) -> Any:
    """Return what an object is: its text, or the parts that it consists of, which may be objects too.

    A function has its qualified name; a lambda or another function that its name does not lead to also has a digest of
    its code and of all values that it uses. A `functools.partial` and a bound method have their function and arguments.
    Other objects have their text; where that has an address, their class and their attributes, if these are numbers and
    texts. Two objects that are not proved equal by this are different: the text of what is not known in full is never
    the same again. `within` are the objects that this one is a part of.
    """
    if type(value) is functools.partial:
        return {"function": value.func, "args": value.args, "keywords": value.keywords, **vars(value)}
    if isinstance(value, types.MethodType):
        return {"function": value.__func__, "args": [value.__self__]}
    if isinstance(value, _BUILTINS):
        return _built_in_function(value)
    if isinstance(value, types.FunctionType):
        return _qualified_name(value) if _is_found_by_name(value) else _local_function(value, within)
    text = masked_words([str(value)])[0]
    if isinstance(value, type):
        return text if _is_found_by_name(value) else _unlike_any_other(text)
    if not _ADDRESS.search(text):
        return text
    attributes = _attributes(value)
    return _unlike_any_other(text) if attributes is None else {"class": _qualified_name(type(value)), **attributes}


def _unlike_any_other(text: str) -> str:
    """A text that is never the same again. An address would not do: the next object may get it."""
    return f"{_ADDRESS.sub('', text)} number {uuid.uuid4().hex}"


def _qualified_name(value: Callable[..., Any]) -> str:
    return ".".join(filter(None, (value.__module__, value.__qualname__)))


def _is_found_by_name(value: Any) -> bool:
    """Whether the qualified name of a function or class leads to it, as it does to no local one."""
    if isinstance(value, type) and not value.__flags__ & _HEAP_TYPE:
        return True
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return getattr(found, "__func__", found) is value  # that of a class method


def _built_in_function(value: Any) -> Any:
    """The name of a function of a module or a class; for the method of an object that too."""
    owner = value.__self__
    if owner is None or isinstance(owner, types.ModuleType):
        return _qualified_name(value)
    if isinstance(owner, type):
        return _qualified_name(value) if _is_found_by_name(owner) else _unlike_any_other(str(value))
    return {"function": value.__qualname__, "args": [owner]}


def _attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of an object, also those of its classes that are no methods; None if there may be others."""
    found: dict[str, Any] = {}
    classes = [each for each in reversed(type(value).__mro__) if each not in _EMPTY_CLASSES]
    for each in classes:
        if not _is_found_by_name(each):
            return None
        for name, item in vars(each).items():
            if isinstance(item, types.MemberDescriptorType):  # of `__slots__`
                found |= {name: getattr(value, name)} if hasattr(value, name) else {}
            elif not (name in _OF_EVERY_CLASS or _is_method(item, f"{_qualified_name(each)}.{name}")):
                found[name] = item
    found |= getattr(value, "__dict__", {})
    return found if classes and all(isinstance(each, _LEAVES) for each in found.values()) else None


_T = TypeVar("_T")


class _Empty(ABC, Generic[_T]):
    """A class without attributes of its own."""

    __slots__ = ("__dict__", "__weakref__")
    __annotations__: dict[str, Any]


_OF_EVERY_CLASS = {*vars(_Empty), "__hash__", "__match_args__"}


def _is_method(item: Any, name: str) -> bool:
    """Whether an attribute of a class is what its statement defines under this qualified name."""
    functions = [item.fget, item.fset, item.fdel] if isinstance(item, property) else [getattr(item, "__func__", item)]
    return all(each is None or (isinstance(each, _NAMED) and _qualified_name(each) == name) for each in functions)


def _local_function(function: types.FunctionType, within: tuple[Any, ...]) -> str:
    codes = list(_codes(function.__code__))
    read = [(each.opname, each.argval) for code in codes for each in dis.get_instructions(code)]
    attributes = {name for operation, name in read if operation in _READ_ATTRIBUTE}
    names = sorted({name for operation, name in read if operation in _READ_GLOBAL})
    used: list[Any] = [function.__defaults__, function.__kwdefaults__, vars(function)]
    used += [function.__globals__.get(name, getattr(builtins, name, _unlike_any_other(name))) for name in names]
    used += [_content(cell) for cell in function.__closure__ or ()]
    used += [_unlike_any_other(name) for operation, name in read if operation == _IMPORTS]
    texts = [_text_of(each, attributes, (*within, function)) for each in used]
    digest = hashlib.sha256(repr(([_code_texts(code) for code in codes], names, texts)).encode()).hexdigest()
    return f"{_qualified_name(function)} with code of sha256 {digest[:16]}"


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def _code_texts(code: types.CodeType) -> list[Any]:
    """What a function does, without the lines that it stands in."""
    arguments = (code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    constants = ("" if isinstance(each, types.CodeType) else _constant(each) for each in code.co_consts)
    return [code.co_code, code.co_exceptiontable, arguments, code.co_names, code.co_varnames, *constants]


def _constant(value: Any) -> str:
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return _unlike_any_other("")


def _text_of(value: Any, attributes: Set[str], within: tuple[Any, ...]) -> str:
    """A text of a value that a function uses: equal only where the values are. Of modules these `attributes` count."""
    kind = type(value)
    if isinstance(value, _LEAVES):
        return f"{_qualified_name(kind)} {value!r}"
    if any(value is each for each in within):
        return value.__name__ if isinstance(value, types.ModuleType) else _unlike_any_other("")
    inner = functools.partial(_text_of, attributes=attributes, within=(*within, value))
    if isinstance(value, types.ModuleType):
        return repr(
            [value.__name__, *((name, inner(vars(value)[name])) for name in sorted(attributes & {*vars(value)}))]
        )
    if kind in (tuple, list, set, frozenset, dict) and len(value) <= _MAX_ITEMS:
        texts = [inner(each) for each in (value.items() if kind is dict else value)]
        return repr([kind.__name__, *(sorted(texts) if kind in (set, frozenset) else texts)])
    if isinstance(value, (*_NAMED, *_BUILTINS, functools.partial, types.MethodType)):
        described = object_settings(value, within=within)
        return described if isinstance(described, str) else inner(described)
    attributes_of = _attributes(value)
    parts = _reduced(value) if attributes_of is None else (type(value), attributes_of)
    return _unlike_any_other("") if parts is None else inner(parts)


def _reduced(value: Any) -> tuple[Any, ...] | None:
    """What an immutable object such as a path, a device or an enum member is made of, as it would be pickled."""
    if hasattr(value, "__len__"):  # it may be large
        return None
    try:
        parts = value.__reduce_ex__(2)
    except Exception:  # an object may refuse to be pickled in any way
        return None
    return (type(value), parts) if isinstance(parts, str) else parts if len(parts) == 2 else None


def plain_settings(params: Any) -> dict[str, Any]:
    """Convert the settings of a run, a mapping, named tuple, dataclass or `argparse.Namespace`, as they are stored.

    NumPy's numbers become Python's, arrays and tensors lists (of over 10,000 elements a digest), nested objects of the
    same kinds mappings, functions their qualified name, and other values that JSON cannot express (a `torch.device`, a
    path, infinity, a number of hundreds of digits) their text, or what they consist of (`object_settings`).
    The texts of secrets are masked, here and so in all that is stored. Raises `UsageError` for anything else, for keys
    that are not strings, for text that UTF-8 cannot encode, for a value that contains itself or is nested in more than
    100 levels, and for one that cannot be read.
    """
    if params is None:
        return {}
    params = _unpacked(params)
    if not isinstance(params, Mapping):
        raise UsageError(
            "A run's settings must be a mapping, a named tuple, a dataclass or an argparse.Namespace, "
            f"got {type(params).__name__}; use expand_grid(...) or a dict."
        )
    return masked_settings({_key(key): _plain_setting(key, value) for key, value in params.items()})


def _plain_setting(name: str, value: Any) -> Any:
    try:
        name.encode()
        return _plain(value)
    except UnicodeEncodeError as error:
        text = error.object
        raise UsageError(
            f"Setting {name!r} must be text that UTF-8 can encode, got {text!r}; leave out what it cannot."
        ) from None
    except UsageError:
        raise
    except _NestingError as error:
        rule, instead = error.args
        raise UsageError(f"Setting {name!r} must {rule}, got a {type(value).__name__} that {instead}.") from None
    except Exception as error:  # an object may raise anything when it is read
        kind, why = type(value).__name__, " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"Setting {name!r} must be one that can be read, got a {kind} that raises {why}.") from error


def _unpacked(value: Any) -> Any:
    """The fields of a named tuple, a dataclass or a namespace; any other value as it is."""
    if isinstance(value, type):
        return value
    if hasattr(value, "_asdict"):
        return value._asdict()
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return vars(value) if isinstance(value, argparse.Namespace | types.SimpleNamespace) else value


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise UsageError(f"The name of a setting must be a string, got {key!r}.")
    return key


def _plain(value: Any, within: tuple[Any, ...] = ()) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)  # JSON turns others into null
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(str.__str__(value))  # the text of a NumPy string, or the value of a text enum
    if isinstance(value, int):
        number = int(value)  # the value of an integer enum
        return number if number.bit_length() <= _MAX_BITS else hex(number)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return _plain(value.item())  # a NumPy scalar or a tensor of one element
    if hasattr(value, "ndim") and hasattr(value, "tolist"):
        return _plain_array(value)
    if isinstance(value, bytes | bytearray):
        return str(bytes(value))  # text, so that it is masked where it is a secret
    if any(value is each for each in within):
        raise _NestingError("not contain itself", "does")
    if len(within) == _MAX_LEVELS:
        raise _NestingError(f"be nested in at most {_MAX_LEVELS} levels", "is nested too deeply")
    inner = partial(_plain, within=(*within, value))
    value = _unpacked(value)
    if isinstance(value, Mapping):
        return {_text(_key(key)): inner(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(inner, value), key=repr)  # their order changes from process to process
    if isinstance(value, Sequence):
        return [inner(item) for item in value]
    return inner(object_settings(value, within=within))


class _NestingError(Exception):
    """A rule for nested settings, and what a value does instead."""


def _text(text: str) -> str:
    """The text. Raises `UnicodeEncodeError` for one that cannot be stored."""
    if not text.isascii():
        text.encode()
    return text


def _plain_array(value: Any) -> Any:
    """The elements of an array or a tensor, whose text leaves digits and elements out; of a large one their digest."""
    elements = _plain(value.tolist())
    if math.prod(value.shape) <= _MAX_ELEMENTS:
        return elements
    digest = hashlib.sha256(json.dumps(elements).encode()).hexdigest()
    return f"{'x'.join(map(str, value.shape))} elements with sha256 {digest}"


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested settings to dotted keys (`{"model": {"depth": 8}}` -> `{"model.depth": 8}`); lists stay values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update({f"{key}.{name}": item for name, item in flatten(value).items()})
        else:
            flat[key] = value
    return flat


def choices_of_groups(choices: Mapping[str, Any], settings: Collection[str]) -> dict[str, Any]:
    """Return Hydra's `runtime.choices` as they are stored: without Hydra's own groups, and those named as a setting."""
    return {
        group: choice for group, choice in choices.items() if not group.startswith("hydra/") and group not in settings
    }


def package_of(group: str) -> str:
    """Return the dotted name below which Hydra puts the settings of a config group: `net` for `model@net`.

    It is empty for `model@_global_`. A file of the group may name another one in its first line.
    """
    name, has_package, package = group.partition("@")
    return package.replace("_global_", "") if has_package else name.replace("/", ".")


def hashable(value: Any) -> Hashable:
    """Return a hashable key of a value; those of 1, 1.0 and True are different."""
    if isinstance(value, list | dict):
        return json.dumps(value, sort_keys=True)
    return type(value).__name__, value


def differing_settings(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the dotted names of the settings in which flat cells differ, in order of appearance."""
    if not cells:
        return []
    names = dict.fromkeys(name for cell in cells for name in cell)
    first = cells[0]
    absent = object()
    return [
        name for name in names if any(_differ(cell.get(name, absent), first.get(name, absent)) for cell in cells[1:])
    ]


def _differ(one: Any, other: Any) -> bool:
    # 1 == True in Python, but they are different values of a setting.
    return one is not other and (type(one) is not type(other) or one != other)


def find_targets(settings: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each `_target_` in nested settings, also inside lists."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            inner = f"{name}.{key}" if name else str(key)
            if inner.rpartition(".")[2] == _TARGET_KEY:
                yield inner, value
            yield from find_targets(value, inner)
    elif isinstance(settings, list | tuple):
        for index, value in enumerate(settings):
            yield from find_targets(value, f"{name}[{index}]")
