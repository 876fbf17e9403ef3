"""Names of settings of this package's Hydra plugins: unknown ones are refused before Hydra reads or ignores them."""

from collections.abc import Collection, Iterable

from runmanager.validation import suggestion

__all__ = ["unknown_names"]


def unknown_names(names: Iterable[str], part: str, known: Collection[str]) -> list[str]:
    """Return a fault for each of these names of `hydra.PART` that is not `known`."""
    return [
        f"`hydra.{part}.{name}` must be a setting of Hydra, got an unknown name; {suggestion(name, known)}"
        for name in names
        if name not in known
    ]
