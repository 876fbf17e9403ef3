"""The harnesses as modules, and what they do only once."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # as where they are started as commands


@pytest.fixture(scope="session")
def kills() -> ModuleType:
    """tests/reliability/kills.py."""
    import kills

    return kills


@pytest.fixture(scope="session")
def deaths() -> ModuleType:
    """tests/reliability/deaths.py."""
    import deaths

    return deaths


@pytest.fixture(scope="session")
def killer(kills: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A killer that has not killed yet."""
    return kills.Killer(tmp_path_factory.mktemp("kills"), seed=20, say=lambda line: None)


@pytest.fixture(scope="session")
def undisturbed(killer: Any) -> Callable[[str], Any]:
    """The undisturbed sweep of a variant."""

    def of(variant: str) -> Any:
        return killer.reference(variant)[0]

    return of
