"""A short form of `make test-soak`, and a check that it sees what grows."""

from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.release
def test_nothing_of_a_run_grows_with_its_epochs(soak: ModuleType, tmp_path: Path) -> None:
    growth = soak.soak_epochs(tmp_path, 200)
    for name in ("descriptors", "threads", "processes"):
        first, last = growth.means(name)
        assert last <= first + 1, name  # a writer's thread may just begin or end
    assert "times the time" in growth.text(each="an epoch")


@pytest.mark.release
def test_nothing_of_a_driver_grows_with_its_cells(soak: ModuleType, tmp_path: Path) -> None:
    growth = soak.soak_cells(tmp_path, 100)
    for name in ("descriptors", "threads", "processes"):
        first, last = growth.means(name)
        assert last <= first + 2, name  # of two workers one may just begin or end


@pytest.mark.parametrize(
    ("name", "grows"), [("descriptors", 1), ("threads", 1), ("processes", 1), ("memory", 30_000), ("seconds", 0)]
)
def test_growth_is_seen(soak: ModuleType, name: str, grows: int) -> None:
    names = ("descriptors", "threads", "processes", "memory", "seconds", "cpu_seconds")
    samples = [
        soak.Sample(done, **{each: 10 + (done * grows if each == name else 0) for each in names})
        for done in range(1000)
    ]
    assert [name in each for each in soak.Growth.of(samples, 1000).grown()] == ([True] if grows else [])
