"""Hydra's groups and their choices, as its help lists them, without a copy of all configuration for each group."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["groups_without_copies"]


@contextmanager
def groups_without_copies() -> Iterator[None]:
    """Have Hydra look its groups up where they lie: it copies all that it has read of them each time, 80 times a help.

    The copy is for those who look with overrides, which may add a search path; they still get it. Where a later Hydra
    keeps its groups elsewhere, its own way stays.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.object_type import ObjectType

    own = ConfigLoaderImpl.get_group_options

    def get_group_options(
        self: Any,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        if config_name is not None or overrides or not hasattr(self, "repository"):
            return own(self, group_name, results_filter, config_name, overrides)
        found: list[str] = self.repository.get_group_options(group_name, results_filter)
        return found

    ConfigLoaderImpl.get_group_options = get_group_options  # type: ignore[method-assign]  # put back below
    try:
        yield
    finally:
        ConfigLoaderImpl.get_group_options = own  # type: ignore[method-assign]  # Hydra's again
