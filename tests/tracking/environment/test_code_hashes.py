"""Hashes of a run's user code: recorded at its start, compared later without executing the code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep
from runmanager.tracking.environment.code_hashes import CodeRehasher, hash_script, hash_user_code, rehash_code

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import importlib
import pathlib
import torch
import helper
import own_package.part
from runmanager import RunManager

importlib.import_module("plug" + "in")
manager = RunManager("outputs/mine", console=False)
for lr in (0.1, 0.2):
    with manager.run({"lr": lr}) as run:
        run.begin(torch.nn.Linear(1, 1), [])
        for epoch in run.epochs(1):
            epoch.track(0.5, samples=3)
    pathlib.Path("plugin.py").write_text("changed = True")
"""


def python(folder: Path, *words: str, stdin: str | None = None) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *words]
    subprocess.run(command, cwd=folder, input=stdin, env=environment, text=True, check=True, timeout=120)


def codes(folder: Path) -> list[dict[str, str] | None]:
    return [run.record.environment.code for run in read_sweep(SweepPaths(folder / "outputs" / "mine")).runs]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "own_package").mkdir()
    sources = {"train.py": SCRIPT, "helper.py": "", "plugin.py": "", "unused.py": "", "own_package/__init__.py": ""}
    for name, source in {**sources, "own_package/part.py": ""}.items():
        (tmp_path / name).write_text(source)
    return tmp_path


@pytest.mark.parametrize("words", [("train.py",), ("-m", "train"), ("../{name}/train.py",)], ids=" ".join)
def test_the_runs_of_a_script_record_its_imports_and_loaded_modules(project: Path, words: tuple[str, ...]) -> None:
    python(project, *(word.format(name=project.name) for word in words))
    first, second = codes(project)
    assert first is not None
    files = {"train.py", "helper.py", "plugin.py", "own_package/__init__.py", "own_package/part.py"}
    assert set(first) == files
    assert first == second  # the process runs what it loaded, not what the file has become
    present = rehash_code(first, (str(project / "train.py"),))
    assert present is not None
    assert {name for name in first if present[name] != first[name]} == {"plugin.py"}


LATER = """
import importlib, pathlib, sys, torch
from runmanager import RunManager

for name in ("early", "written"):
    with RunManager("outputs/mine", console=False).run({"name": name}) as run:
        run.begin(torch.nn.Linear(1, 1), [])
        for epoch in run.epochs(1):
            sys.path.insert(0, "lib")
            if name == "written":
                pathlib.Path("lib/written.py").write_text("now = 1")
            importlib.import_module(name)
            epoch.track(0.5, samples=3)
"""


def test_modules_loaded_during_training_are_recorded(project: Path) -> None:
    (project / "lib").mkdir()
    (project / "lib" / "early.py").write_text("")
    (project / "train.py").write_text(LATER)
    python(project, "train.py")
    first, second = codes(project)
    assert first is not None
    assert set(first) == {"train.py", "lib/early.py"}
    assert second is None  # the file was written during the run: its loaded text is unknown


OWN_MODEL = """
import importlib
from torch import nn

class Net(nn.Sequential):
    def __init__(self, in_shape, num_classes):
        importlib.import_module("help" + "er")
        super().__init__(nn.Flatten(), nn.Linear(in_shape[1] * in_shape[2], num_classes))
"""


def test_a_module_imported_by_a_computed_name_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_MODEL)
    (tmp_path / "helper.py").write_text("")
    words = "model=custom model._target_=own.Net lr=0.1 epochs=1 dataset.size=40 device=cpu tensorboard.enabled=false"
    python(tmp_path, "-m", "runmanager", *words.split(), "name=mine")
    assert [set(each or ()) for each in codes(tmp_path)] == [{"own.py", "helper.py"}]


def test_code_without_a_file_is_unknown(project: Path) -> None:
    python(project, "-", stdin=SCRIPT)
    assert codes(project) == [None, None]


def test_a_built_in_run_records_its_targets_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("import part")
    Path("part.py").write_text("")
    model = {"name": "custom", "_target_": "own.Net", "layers": [{"_target_": "other.Layer"}]}
    assert hash_user_code({"lr": 1, "model": {"name": "cnn"}}, is_built_in=True) == {}
    assert hash_user_code({"model": model}, is_built_in=True) is None
    Path("other.py").write_text("")
    first = hash_user_code({"model": model}, is_built_in=True)
    assert first is not None
    assert list(first) == ["other.py", "own.py", "part.py"]
    Path("part.py").write_text("changed = True")
    second = hash_user_code({"model": model}, is_built_in=True)
    assert second is not None
    assert [name for name in first if second[name] != first[name]] == ["part.py"]


def test_each_file_is_read_once_for_all_runs(tmp_path: Path) -> None:
    rehasher = CodeRehasher(tmp_path)
    (tmp_path / "own.py").write_text("")
    first = rehasher.rehash({"own.py": "abc", "gone.py": "def"})
    assert first is not None
    assert (bool(first["own.py"]), first["gone.py"]) == (True, "")
    (tmp_path / "own.py").write_text("changed = True")
    (tmp_path / "gone.py").write_text("")
    assert rehasher.rehash({"own.py": "xyz", "gone.py": "def"}) == first
    assert CodeRehasher(tmp_path).rehash({"own.py": "abc"}) != {"own.py": first["own.py"]}


def test_in_another_folder_the_code_is_unknown(tmp_path: Path) -> None:
    rehasher = CodeRehasher(tmp_path)
    assert rehasher.rehash({"own.py": "abc"}) is None
    assert rehasher.rehash({"/dev/zero": "abc"}) is None  # an endless file
    assert rehasher.rehash({}) == {}
    assert rehasher.rehash(None) is None


def test_a_script_counts_with_what_it_imports_and_never_with_its_data(tmp_path: Path) -> None:
    (tmp_path / "code" / "parts").mkdir(parents=True)
    script = tmp_path / "code" / "train.py"
    script.write_text("import helper\nfrom parts import net\nimport torch\n")
    (tmp_path / "code" / "helper.py").write_text("")
    (tmp_path / "code" / "parts" / "net.py").write_text("from . import layers\n")
    (tmp_path / "code" / "parts" / "layers.py").write_text("")
    (tmp_path / "code" / "unused.py").write_text("")
    (tmp_path / "code" / "data.csv").write_text("1")
    folders = [str(script.parent), str(tmp_path)]

    before = hash_script(script, "", folders, relative_to=tmp_path)
    names = ["code/helper.py", "code/parts/layers.py", "code/parts/net.py", "code/train.py"]
    assert before is not None and list(before) == names

    (tmp_path / "code" / "data.csv").write_text("2")
    (tmp_path / "code" / "unused.py").write_text("changed = True")
    assert hash_script(script, "", folders, relative_to=tmp_path) == before
    (tmp_path / "code" / "parts" / "layers.py").write_text("changed = True")
    after = hash_script(script, "", folders, relative_to=tmp_path)
    assert after is not None and [name for name in names if after[name] != before[name]] == ["code/parts/layers.py"]

    assert CodeRehasher(tmp_path).rehash(before) == after
    assert hash_script(script, "", [str(tmp_path / "code" / "parts")], relative_to=tmp_path) is None


def test_a_file_whose_name_no_record_can_have_makes_the_code_unknown(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"# caf\xe9\nimport own\n")  # nor is its text UTF-8
    (tmp_path / "own.py").touch()
    assert set(hash_script(tmp_path / "train.py", "", [str(tmp_path)], relative_to=tmp_path) or {}) == {
        "train.py",
        "own.py",
    }
    odd = tmp_path / os.fsdecode(b"caf\xe9.py")
    odd.touch()
    assert hash_script(odd, "", [str(tmp_path)], relative_to=tmp_path) is None
