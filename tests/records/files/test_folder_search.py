"""The search of folders that any program may have written."""

from pathlib import Path

import pytest

from runmanager.records.files.paths import files_below, folder_entries, folders_below


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("b/two.csv", "b/runs/three.csv", "a/one.csv", "a/one.txt", "runs/own.csv", ".hidden/four.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "link").symlink_to(tmp_path / "a", target_is_directory=True)
    return tmp_path


def found(root: Path, *without: str) -> list[str]:
    notes: list[str] = []
    paths = files_below(root, lambda name: name.endswith(".csv"), notes, without=without)
    assert notes == []
    return [str(path.relative_to(root)) for path in paths]


def test_files_are_sorted_and_neither_hidden_nor_behind_links(root: Path) -> None:
    assert found(root) == ["a/one.csv", "b/two.csv", "b/runs/three.csv", "runs/own.csv"]


def test_folders_are_left_out_by_name_directly_in_the_root_only(root: Path) -> None:
    assert found(root, "runs") == ["a/one.csv", "b/two.csv", "b/runs/three.csv"]


def test_a_caller_may_leave_folders_out(root: Path) -> None:
    seen = []
    for folder, subfolders, names in folders_below(root, []):
        seen.append((folder.name, list(subfolders), names))
        subfolders[:] = [each for each in subfolders if each == "b"]
    assert seen[0][1] == ["a", "b", "link", "runs"]
    assert [name for name, _, _ in seen[1:]] == ["b"]
    assert seen[1][1:] == (["runs"], ["two.csv"])


@pytest.mark.parametrize(("most", "is_whole"), [(11, True), (10, False)])
def test_a_search_of_too_many_files_ends_and_says_so(root: Path, most: int, is_whole: bool) -> None:
    notes: list[str] = []
    searched = [folder for folder, _, _ in folders_below(root, notes, max_entries=most)]
    assert (len(searched) == 5) is is_whole
    text = f"{root} must hold at most {most} files, got more; the rest of them was not searched"
    assert notes == ([] if is_whole else [text])


def test_what_cannot_be_read_is_noted(root: Path) -> None:
    notes: list[str] = []
    assert list(folders_below(root / "missing", notes)) == []
    assert notes == [f"{root / 'missing'} cannot be read: No such file or directory"]
    assert folder_entries(str(root / "missing")) == []
    assert sorted(entry.name for entry in folder_entries(str(root / "a"))) == ["one.csv", "one.txt"]
