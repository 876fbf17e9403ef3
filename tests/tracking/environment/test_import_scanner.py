"""User files that a program imports, found without importing anything."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runmanager.tracking.environment.program_code import ImportScanner


def write(folder: Path, sources: dict[str, str]) -> None:
    for name, source in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)


def imported(folder: Path, target: str) -> set[str] | None:
    scanner = ImportScanner([str(folder)])
    return {Path(file).relative_to(folder).as_posix() for file in scanner.files} if scanner.add_target(target) else None


EVERY_FORM = '''
"""import documented"""
import plain, dotted.inner.leaf as leaf
from package import (  # a comment with a ) in it
    submodule,
    Name,
)
from package.relative import something; import after_a_semicolon
from namespace.deeper \\
    import module
if True: import conditional
def later():
    from lazily import it
try:
    import fast_or_not
except ImportError:
    pass
important = from_nothing = 1
import json, torch, missing_module
raise AssertionError("this must be read, not executed")
'''


def test_every_form_of_import_is_followed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "own/__init__.py": "",
            "own/net.py": EVERY_FORM,
            "plain.py": "import own.net, plain",  # circular
            "dotted/__init__.py": "",
            "dotted/inner/__init__.py": "from . import leaf",
            "dotted/inner/leaf.py": "from ...too.far import up",
            "package/__init__.py": "from .exported import Name",
            "package/exported.py": "",
            "package/submodule.py": "from . import sibling\nfrom ..beyond import nothing",
            "package/sibling.py": "",
            "package/relative.py": "",
            "package/unused.py": "",
            "namespace/deeper/module.py": "from ..other.module import x",
            "namespace/other/module.py": "",
            "after_a_semicolon.py": "",
            "conditional.py": "",
            "lazily.py": "",
            "fast_or_not.py": "",
            "documented.py": "",
            "data/plain.txt": "",
            "outputs/run/plain.py": "",
        },
    )
    before = set(sys.modules)
    assert imported(tmp_path, "own.net.Net") == {
        *("own/__init__.py", "own/net.py", "plain.py"),
        *("dotted/__init__.py", "dotted/inner/__init__.py", "dotted/inner/leaf.py"),
        *("package/__init__.py", "package/exported.py", "package/submodule.py", "package/sibling.py"),
        *("package/relative.py", "namespace/deeper/module.py", "namespace/other/module.py"),
        *("after_a_semicolon.py", "conditional.py", "lazily.py", "fast_or_not.py"),
    }
    assert set(sys.modules) == before


def test_installed_modules_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = ".venv/lib/python3.11/site-packages"
    write(tmp_path, {"own.py": "import vendored", f"{installed}/vendored.py": "import helper", "helper.py": ""})
    monkeypatch.syspath_prepend(tmp_path / installed)
    assert imported(tmp_path, "own.Net") == {"own.py"}
    assert imported(tmp_path, "vendored.Net") == {f"{installed}/vendored.py"}  # a record has no version of it


def test_a_target_in_another_folder_is_followed_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"lib/mine/__init__.py": "", "lib/mine/net.py": "from mine import parts", "lib/mine/parts.py": ""})
    write(tmp_path, {"lib/single.py": "import sibling", "lib/sibling.py": "", "here/x.py": ""})
    monkeypatch.syspath_prepend(tmp_path / "lib")
    for target, files in (("mine.net.Net", {"__init__", "net", "parts"}), ("single.Net", {"single", "sibling"})):
        scanner = ImportScanner([str(tmp_path / "here")])
        assert scanner.add_target(target)
        assert {Path(file).stem for file in scanner.files} == files


@pytest.mark.parametrize("target", ["nothing.Net", "", "..", "a/b.Net", "['own.Net']"])
def test_a_target_that_does_not_exist_is_unknown(tmp_path: Path, target: str) -> None:
    assert imported(tmp_path, target) is None


def test_modules_are_found_where_python_finds_them(tmp_path: Path) -> None:
    """Packages before modules, the first folder before the second, namespace packages last."""
    write(
        tmp_path,
        {
            "one/both/__init__.py": "",
            "one/both.py": "",
            "one/apart/x.py": "",
            "two/apart/y.py": "",
            "one/late/z.py": "",
            "two/late.py": "",
            "two/both.py": "",
        },
    )
    names = ("both", "apart.x", "apart.y", "late")
    script = f"import importlib\nfor name in {names!r}: print(importlib.import_module(name).__file__)"
    folders = [str(tmp_path / "one"), str(tmp_path / "two")]
    python = [sys.executable, "-c", f"import sys; sys.dont_write_bytecode = True; sys.path[:0] = {folders!r}\n{script}"]
    expected = subprocess.run(python, capture_output=True, text=True, check=True, timeout=120).stdout.split()
    importlib.invalidate_caches()
    for name, file in zip(names, expected, strict=True):
        scanner = ImportScanner(folders)
        assert scanner.add_target(f"{name}.Net")
        assert file in scanner.files


def test_what_cannot_be_looked_at_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"script.py": f"import {'long' * 100}, own, looping\n", "own.py": ""})
    (tmp_path / "looping.py").symlink_to(tmp_path / "looping.py")
    monkeypatch.setattr(sys, "path", ["/proc/1/task/0" + "/deep" * 2000, *sys.path])
    scanner = ImportScanner([str(tmp_path)])
    scanner.add_script(str(tmp_path / "script.py"), "")
    scanner.add_file(str(tmp_path / "looping.py"))  # as a module whose file was replaced since it was loaded
    assert {Path(file).name for file in scanner.files} >= {"script.py", "own.py"}


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable for root")
def test_an_unreadable_folder_on_the_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"own.py": "import elsewhere\n"})
    (tmp_path / "closed").mkdir(mode=0)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "closed"), *sys.path])
    assert imported(tmp_path, "own") == {"own.py"}
