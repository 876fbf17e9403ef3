"""Settings of runs as plain values: conversion, dotted names, differences, targets."""

import argparse
import dataclasses
import hashlib
import json
import math
import types
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.settings.objects import object_settings
from runmanager.records.settings.secrets import masked_settings

__all__ = [
    *("choices_of_groups", "differing_settings", "find_targets", "flatten", "hashable", "package_of"),
    "plain_settings",
]

_TARGET_KEY = "_target_"
_MAX_BITS = 1_023  # of a whole number: no larger one has a float
_MAX_LEVELS = 100  # of nested settings
_MAX_ELEMENTS = 10_000  # of an array, which is stored as its digest from there on


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
