"""Somebody's own parts: finding what `_target_` names, and calling it with the settings that it takes."""

import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from runmanager.errors import ConfigurationError
from runmanager.validation import suggestion

__all__ = ["call_target", "check_arguments", "parameter_names", "resolve_target"]


def resolve_target(options: Mapping[str, Any], *, group: str) -> Callable[..., Any]:
    """What `options["_target_"]` names: `package.module.Class`, or a function.

    It is looked up in the current folder and in the installed packages. Raises `ConfigurationError` that says which
    part of the name was not found; an error inside somebody's module passes through.
    """
    key = f"{group}._target_"
    path = options.get("_target_")
    if not isinstance(path, str) or not all(part.isidentifier() for part in path.split(".")) or "." not in path:
        raise ConfigurationError(
            [f"`{key}` must be a dotted name, got {path!r}; write `{group}=custom {key}=package.module.Name`."]
        )
    _search_current_folder()
    found, rest = _imported(path, key)
    for number, name in enumerate(rest):
        if not hasattr(found, name):
            owner = path.removesuffix("." + ".".join(rest[number:]))
            public = [each for each in dir(found) if not each.startswith("_")]
            raise ConfigurationError(
                [
                    f"`{key}` must name something that exists, got {path}: "
                    f"{owner} has no '{name}'; {suggestion(name, public)}"
                ]
            )
        found = getattr(found, name)
    if not callable(found):
        raise ConfigurationError([f"`{key}` must name a class or a function, got {path}: a {type(found).__name__}."])
    target: Callable[..., Any] = found
    return target


def call_target(
    target: Callable[..., Any], options: Mapping[str, Any], offered: Mapping[str, Any], *, group: str
) -> Any:
    """Call `target` with the settings in `options` and with what it takes by name of `offered`; settings win.

    Raises `ConfigurationError` when a setting is not taken, or an argument has no value. What the call raises passes.
    """
    check_arguments(target, options, offered, group=group)
    taken = parameter_names(target)
    return target(**{key: value for key, value in offered.items() if key in taken} | _settings(options))


def check_arguments(
    target: Callable[..., Any], options: Mapping[str, Any], offered: Collection[str], *, group: str
) -> None:
    """Raise what `call_target` would of the arguments, without a call."""
    settings = _settings(options)
    taken = parameter_names(target)
    faults = [
        f"`{group}.{key}` must be an argument of {options['_target_']}, which takes {', '.join(taken) or 'none'}; "
        f"{suggestion(key, taken)}"
        for key in settings
        if key not in taken and not _takes_any(target)
    ]
    faults += [
        f"{options['_target_']} must be given '{key}', got nothing; add `+{group}.{key}=…`."
        for key in _required(target)
        if key not in settings and key not in offered
    ]
    if faults:
        raise ConfigurationError(faults)


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in ("name", "_target_")}


def parameter_names(target: Callable[..., Any]) -> list[str]:
    """The arguments that `target` takes by name; none where Python cannot tell."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [each.name for each in _parameters(target) or () if each.kind in kinds]


def _required(target: Callable[..., Any]) -> list[str]:
    names = parameter_names(target)
    return [each.name for each in _parameters(target) or () if each.name in names and each.default is each.empty]


def _takes_any(target: Callable[..., Any]) -> bool:
    parameters = _parameters(target)
    return parameters is None or any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)


def _parameters(target: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):  # some that are written in C do not say
        return None


def _search_current_folder() -> None:
    """Import from the folder of the command too, as `python -m` does and a console script does not."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()


def _imported(path: str, key: str) -> tuple[Any, list[str]]:
    """The longest part of `path` that is a module, and the names that are left."""
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:length])
        try:
            return importlib.import_module(module), parts[length:]
        except ModuleNotFoundError as error:
            if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
                raise  # it is there, and what it imports is not
    raise ConfigurationError(
        [
            f"`{key}` must name something that exists, got {path}: there is no module '{parts[0]}' in the current "
            f"folder ({Path.cwd()}) or among the installed packages; run the command where it lies, or install it."
        ]
    )
