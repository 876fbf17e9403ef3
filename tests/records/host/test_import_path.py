"""The current folder on the import path."""

import json
import os
import sys
from pathlib import Path

import pytest

from runmanager.records.host.import_path import modules_like_standard, search_current_folder


def test_the_current_folder_comes_after_the_standard_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = str(Path(os.__file__).parent)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "own", library, f"{library}/lib-dynload", "site", str(tmp_path)])
    search_current_folder()
    assert sys.path == ["own", library, f"{library}/lib-dynload", str(tmp_path), "site"]
    monkeypatch.setattr(sys, "path", ["", "own"])
    search_current_folder()
    assert sys.path == [str(tmp_path), "own"]
    monkeypatch.setattr(sys, "path", ["own", "site"])  # without the standard library
    search_current_folder()
    assert sys.path == [str(tmp_path), "own", "site"]


def test_modules_that_are_named_as_one_of_the_standard_library(tmp_path: Path) -> None:
    assert json and modules_like_standard(tmp_path) == []
    for name in ("sys.py", "own.py"):
        (tmp_path / name).touch()
    for name in ("json", "os", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "json" / "__init__.py").touch()
    assert modules_like_standard(tmp_path) == ["sys.py", "json/"]
