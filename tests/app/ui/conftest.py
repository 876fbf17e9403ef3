"""A folder with one sweep that is being made, and its server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.run_folder import RunFolder

from .served import Client, serving, write_live_sweep


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


@pytest.fixture
def live(root: Path) -> Iterator[tuple[SweepPaths, RunFolder]]:
    """A sweep `first` of a finished run and of one that is being made."""
    paths, going = write_live_sweep(root / "first")
    yield paths, going
    going.close()


@pytest.fixture
def client(root: Path, live: tuple[SweepPaths, RunFolder]) -> Iterator[Client]:
    with serving(root) as client:
        yield client
