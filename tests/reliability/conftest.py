"""The harnesses as modules, and their shared sweeps."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # as when they are run as commands


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
def soak() -> ModuleType:
    """tests/reliability/soak.py."""
    import soak

    return soak


@pytest.fixture(scope="session")
def killer(kills: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A killer that has not killed anything yet."""
    return kills.Killer(tmp_path_factory.mktemp("kills"), seed=20, report=lambda line: None)


@pytest.fixture(scope="session")
def undisturbed(killer: Any) -> Callable[[str], Any]:
    """Return the undisturbed sweep of a variant."""

    def of(variant: str) -> Any:
        return killer.reference(variant)[0]

    return of
