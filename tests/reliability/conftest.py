"""The harness as a module, and its undisturbed sweeps, run once."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="session")
def kills() -> ModuleType:
    """tests/reliability/kills.py."""
    spec = importlib.util.spec_from_file_location("kills", Path(__file__).with_name("kills.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kills"] = module  # dataclasses look themselves up in here
    spec.loader.exec_module(module)
    return module


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
