"""Resolution of `_target_` names: user-defined classes and functions, and the restricted targets of stored settings."""

import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from runmanager.errors import ConfigurationError, UsageError
from runmanager.records.host.import_path import search_current_folder
from runmanager.records.settings.values import find_targets
from runmanager.text import error_line, printable, truncated
from runmanager.validation import suggestion

_KNOWN_PACKAGES = ("torch.nn.", "torchvision.models.", "runmanager.")
"""The prefixes that the name of a stored target, and the module that defines its class, may have."""

_METRIC_PACKAGES = (
    "torchmetrics.aggregation.",
    "torchmetrics.classification.",
    "torchmetrics.regression.",
    "torchmetrics.segmentation.",
)
"""The modules that may define the class of a stored metric too. Others of torchmetrics download and load models."""

_OR_METRIC = f" or {', '.join(_METRIC_PACKAGES)}"

_IMPORTED = ("torch.nn.", "torchvision.models.", "runmanager.training.", *_METRIC_PACKAGES)
"""The modules that may be imported: importing others of this package can change the process, as a forkserver's does."""


def resolve_target(options: Mapping[str, Any], *, group: str) -> Callable[..., Any]:
    """Import the class or function that `options["_target_"]` names: `package.module.Class`.

    It is looked up in the current folder and in the installed packages. Raises `ConfigurationError` that names the
    part of the name that was not found; an error inside the imported module is not caught.
    """
    key = f"{group}._target_"
    path = options.get("_target_")
    if not isinstance(path, str) or not all(part.isidentifier() for part in path.split(".")) or "." not in path:
        raise ConfigurationError(
            [f"`{key}` must be a dotted name, got {path!r}; write `{group}=custom {key}=package.module.Name`."]
        )
    _search_current_folder()
    found, rest = _import_longest(path, key)
    for number, name in enumerate(rest):
        if not hasattr(found, name):
            _refuse_hidden(path, key)
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
    """Call `target` with the settings in `options`, and with those arguments of `offered` that it has; settings win.

    Raises `ConfigurationError` if `target` does not have an argument for a setting, or an argument has no value.
    Exceptions of the call itself are not caught.
    """
    check_arguments(target, options, offered, group=group)
    taken = parameter_names(target)
    return target(**{key: value for key, value in offered.items() if key in taken} | _settings(options))


def check_arguments(
    target: Callable[..., Any], options: Mapping[str, Any], offered: Collection[str], *, group: str
) -> None:
    """Check the arguments as `call_target` does, without the call. Raises `ConfigurationError`."""
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
    # `name` is the choice of a group there, unless it is an argument of the target.
    return {key: value for key, value in options.items() if key != "_target_" and (key, value) != ("name", "custom")}


def parameter_names(target: Callable[..., Any]) -> list[str]:
    """The arguments that `target` takes by name; none if it has no signature."""
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
    except (TypeError, ValueError):  # some callables written in C have no signature
        return None


def _search_current_folder() -> None:
    """Import from the current folder too, which the path of a console script lacks."""
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        search_current_folder()
    importlib.invalidate_caches()


def _import_longest(path: str, key: str) -> tuple[Any, list[str]]:
    """Import the longest part of `path` that is a module; return it and the remaining names."""
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:length])
        try:
            return importlib.import_module(module), parts[length:]
        except ModuleNotFoundError as error:
            if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
                raise  # the module exists, but one that it imports does not
    raise ConfigurationError(
        [
            f"`{key}` must name something that exists, got {path}: module '{parts[0]}' is neither in the current "
            f"folder ({Path.cwd()}) nor among the installed packages; run the command in its folder, or install it."
        ]
    )


def _refuse_hidden(path: str, key: str) -> None:
    """Raise `ConfigurationError` for a module of the current folder that the standard library hides."""
    name = path.partition(".")[0]
    if name in sys.stdlib_module_names and (Path(f"{name}.py").exists() or Path(name, "__init__.py").exists()):
        rule = f"name a module that Python's standard library does not have, got {path}"
        raise ConfigurationError([f"`{key}` must {rule}, whose own `{name}` comes first; rename yours."])


def refuse_foreign_targets(settings: Any, *, name: str = "", way_out: str) -> None:
    """Raise `UsageError` unless every `_target_` in stored `settings` names a class of torch.nn.Module that is known.

    Known packages define it; below the setting `metrics`, torchmetrics may too. Stored settings are data and must not
    run code. All names are checked before the first one is looked up, so that no other package is imported. `name` is
    the key of the settings in messages; `way_out` ends the message.
    """
    found = dict(find_targets(settings, name))
    refused = {key: "" for key, target in found.items() if not _has_known_prefix(target, _is_of_metric(key))}
    if not refused:
        resolved = {key: _resolve_network(target, _is_of_metric(key)) for key, target in found.items()}
        refused = {key: f" ({why})" for key, why in resolved.items() if isinstance(why, str)}
    if refused:
        got = ", ".join(truncated(f"{_printable_target(found[key])} as {key}{why}") for key, why in refused.items())
        raise UsageError(
            f"A stored `_target_` is data and must name a class of torch.nn.Module below {', '.join(_KNOWN_PACKAGES)}"
            f"{_OR_METRIC if any(map(_is_of_metric, refused)) else ''}, got {printable(got)}; {way_out}."
        )


def known_network(options: Mapping[str, Any], *, group: str) -> Any:
    """The class that the `_target_` of stored settings names; call `refuse_foreign_targets` first."""
    found = _resolve_network(options["_target_"])
    assert not isinstance(found, str), f"{group}: {found}"
    return found


def _is_of_metric(key: str) -> bool:
    return key.startswith("metrics.")


def _has_known_prefix(target: Any, is_metric: bool) -> bool:
    prefixes = (*_KNOWN_PACKAGES, "torchmetrics.") if is_metric else _KNOWN_PACKAGES
    return isinstance(target, str) and target.startswith(prefixes) and all(map(str.isidentifier, target.split(".")))


def _resolve_network(target: str, is_metric: bool = False) -> type | str:
    """The class of that name, or the reason why it is refused.

    The current folder is not searched, and attributes are looked up only in known packages: their modules
    have imported `os` and `subprocess`.
    """
    from torch import nn

    homes = (*_KNOWN_PACKAGES, *_METRIC_PACKAGES) if is_metric else _KNOWN_PACKAGES
    root = next((known.removesuffix(".") for known in _KNOWN_PACKAGES if target.startswith(known)), "torchmetrics")
    try:
        found: Any = importlib.import_module(root)
        for name in target.removeprefix(f"{root}.").split("."):
            found = _attribute(found, name)
            if not _is_from(homes, found):
                return _description(found)
    except (AttributeError, ImportError, RuntimeError) as error:  # torchvision may be missing, or not fit torch
        return error_line(error)
    return found if isinstance(found, type) and issubclass(found, nn.Module) else _description(found)


def _attribute(owner: Any, name: str) -> Any:
    module = f"{getattr(owner, '__name__', '')}.{name}"
    if isinstance(owner, ModuleType) and not hasattr(owner, name) and f"{module}.".startswith(_IMPORTED):
        return importlib.import_module(module)
    return getattr(owner, name)


def _is_from(homes: tuple[str, ...], found: Any) -> bool:
    home = found.__name__ if isinstance(found, ModuleType) else getattr(found, "__module__", None)
    return isinstance(found, ModuleType | type) and f"{home}.".startswith(homes)


def _description(found: Any) -> str:
    if isinstance(found, ModuleType):
        return f"the module {found.__name__}"
    return f"the class {found.__module__}.{found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"


def _printable_target(target: Any) -> str:
    return target if isinstance(target, str) and target.isprintable() else repr(target)
