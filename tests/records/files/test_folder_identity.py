"""A folder that is deleted, moved or replaced while it is in use."""

from pathlib import Path

import pytest

from runmanager.records.files.paths import FolderIdentity


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def test_a_folder_that_stays_is_not_lost(folder: Path) -> None:
    identity = FolderIdentity(folder)
    (folder / "file").touch()
    assert identity.loss == ""


def test_a_deleted_or_moved_folder_is_lost_for_good(folder: Path) -> None:
    identity = FolderIdentity(folder)
    folder.rename(folder.with_name("moved"))
    assert identity.loss == "it deleted or moved"
    folder.mkdir()
    assert identity.loss == "it deleted or moved", "as first seen"
    assert FolderIdentity(folder).loss == ""


def test_another_folder_in_its_place_is_told(folder: Path) -> None:
    identity = FolderIdentity(folder)
    folder.rmdir()
    folder.mkdir()
    assert identity.loss == "another in its place"


def test_a_file_in_place_of_a_parent_is_a_loss(folder: Path) -> None:
    (folder / "inner").mkdir()
    identity = FolderIdentity(folder / "inner")
    (folder / "inner").rmdir()
    folder.rmdir()
    folder.touch()
    assert identity.loss == "it deleted or moved"
