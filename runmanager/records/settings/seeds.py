"""Which settings are seeds: runs that differ in them alone repeat one measurement."""

from collections.abc import Mapping
from typing import Any

__all__ = ["SEED", "is_seed", "seed_of"]

SEED = "seed"
"""The seed of the built-in job."""


def is_seed(name: str) -> bool:
    """Whether a setting, by its dotted name, is a seed."""
    return name == SEED


def seed_of(config: Mapping[str, Any]) -> Any:
    """Return the seed of a run with these settings; None for a run without one."""
    return next((value for name, value in config.items() if is_seed(name)), None)
