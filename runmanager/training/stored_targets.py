"""Targets that stand in stored settings. These are data: they may name networks of known packages and nothing else."""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.settings.values import find_targets
from runmanager.text import error_line, printable, truncated

__all__ = ["known_network", "refuse_foreign_targets"]

_KNOWN = ("torch.nn.", "torchvision.models.", "runmanager.")
"""What the name of a stored target begins with, and that of the module which defines the class."""

_WITH_NETWORKS = ("torch.nn.", "torchvision.models.", "runmanager.training.")
"""The modules that may be imported: others of this package are for processes that they change, as a forkserver's."""


def refuse_foreign_targets(settings: Any, *, name: str = "", way_out: str) -> None:
    """Raise `UsageError` unless every `_target_` in `settings` names a network's class of a known package.

    Every name is judged before the first one is looked up, so nothing of another package is imported. `name` is what
    the settings are called, `way_out` ends the message.
    """
    found = dict(find_targets(settings, name))
    refused = {key: "" for key, target in found.items() if not _begins_as_known(target)}
    if not refused:
        looked_up = {key: _network(target) for key, target in found.items()}
        refused = {key: f" ({why})" for key, why in looked_up.items() if isinstance(why, str)}
    if refused:
        got = ", ".join(truncated(f"{_shown(found[key])} as {key}{why}") for key, why in refused.items())
        raise UsageError(
            f"A stored `_target_` is data and must name a class of torch.nn.Module below {', '.join(_KNOWN)}, "
            f"got {printable(got)}; {way_out}."
        )


def known_network(options: Mapping[str, Any], *, group: str) -> Any:
    """The class that the `_target_` of stored settings names, which `refuse_foreign_targets` has let pass."""
    found = _network(options["_target_"])
    assert not isinstance(found, str), f"{group}: {found}"
    return found


def _begins_as_known(target: Any) -> bool:
    return isinstance(target, str) and target.startswith(_KNOWN) and all(map(str.isidentifier, target.split(".")))


def _network(target: str) -> type | str:
    """The class of a network that the name leads to, or why it leads to none.

    The current folder is not searched, and nothing but the known packages is asked for an attribute: their modules
    have imported `os` and `subprocess`.
    """
    from torch import nn

    root = next(known.removesuffix(".") for known in _KNOWN if target.startswith(known))
    try:
        found: Any = import_module(root)
        for name in target.removeprefix(f"{root}.").split("."):
            found = _attribute(found, name)
            if not _belongs(found):
                return _kind(found)
    except (AttributeError, ImportError, RuntimeError) as error:  # torchvision may be missing, or not fit torch
        return error_line(error)
    return found if isinstance(found, type) and issubclass(found, nn.Module) else _kind(found)


def _attribute(owner: Any, name: str) -> Any:
    module = f"{getattr(owner, '__name__', '')}.{name}"
    if isinstance(owner, ModuleType) and not hasattr(owner, name) and f"{module}.".startswith(_WITH_NETWORKS):
        return import_module(module)
    return getattr(owner, name)


def _belongs(found: Any) -> bool:
    home = found.__name__ if isinstance(found, ModuleType) else getattr(found, "__module__", None)
    return isinstance(found, ModuleType | type) and f"{home}.".startswith(_KNOWN)


def _kind(found: Any) -> str:
    if isinstance(found, ModuleType):
        return f"the module {found.__name__}"
    return f"the class {found.__module__}.{found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"


def _shown(target: Any) -> str:
    return target if isinstance(target, str) and target.isprintable() else repr(target)
