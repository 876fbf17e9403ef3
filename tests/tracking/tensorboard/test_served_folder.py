"""The folder that TensorBoard reads: at every moment it has whole runs only."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from runmanager.tracking.tensorboard.logdir import ServedFolder


@pytest.fixture
def served(tmp_path: Path) -> ServedFolder:
    return ServedFolder(tmp_path, "grid")


def files(served: ServedFolder) -> list[str]:
    found = (Path(parent, name) for parent, _, names in os.walk(served.root) for name in names)
    return sorted(str(path.relative_to(served.root)) for path in found)


def put(served: ServedFolder, name: str, *paths: str) -> list[str]:
    """Serve files under a name; return what is served just before."""
    with served.replacing(name) as folder:
        for path in paths:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).touch()
        return files(served)


def test_files_appear_when_all_are_there_and_replace_those_before(served: ServedFolder) -> None:
    assert put(served, "run", "events.1", "printed/events.1") == []
    before = (served.root / "run").stat().st_ino
    assert put(served, "run", "events.2") == ["run/events.1", "run/printed/events.1"]
    assert files(served) == ["run/events.2"]
    assert (served.root / "run").stat().st_ino == before  # a folder that was gone for a moment may count as deleted


def test_a_folder_is_not_served_any_more_when_it_is_deleted(
    served: ServedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(served, "run", "events.1")
    rmtree, deleted = shutil.rmtree, list[Path]()

    def delete(path: Path, *options: Any, **named: Any) -> None:
        deleted.append(Path(path))
        rmtree(path, *options, **named)

    monkeypatch.setattr(shutil, "rmtree", delete)
    served.remove("run")
    assert len(deleted) == 1 and not deleted[0].is_relative_to(served.root)
    assert files(served) == []


def test_what_a_failed_call_left_is_not_served(served: ServedFolder) -> None:
    with pytest.raises(RuntimeError), served.replacing("run") as folder:
        (folder / "events.0").touch()
        raise RuntimeError("the disk is full")
    put(served, "run", "events.1")
    assert files(served) == ["run/events.1"]
