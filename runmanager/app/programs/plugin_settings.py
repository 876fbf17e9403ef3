"""Names of settings of this package's Hydra plugins: unknown ones are refused before Hydra reads or ignores them."""

from collections.abc import Iterable
from dataclasses import fields
from importlib import import_module

from runmanager.validation import suggestion

__all__ = ["unknown_names"]

_PLUGINS = "hydra_plugins.runmanager"


def unknown_names(names: Iterable[str], *, part: str, config: str) -> list[str]:
    """Return a fault for each of these names that `hydra.PART` lacks; `config` is the plugin's dataclass of it."""
    known = [each.name for each in fields(getattr(import_module(_PLUGINS), config)) if each.name != "defaults"]
    return [
        f"`hydra.{part}.{name}` must be a setting of Hydra, got an unknown name; {suggestion(name, known)}"
        for name in names
        if name not in known
    ]
