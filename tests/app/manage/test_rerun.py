"""Removed cells in a rerun, and a renamed sweep that is continued: scripts and custom loops."""

import json
from pathlib import Path

import pytest
import torch

from runmanager import RunManager
from runmanager.app.manage.sweep_folders import remove_run, rename_sweep
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import run_names
from runmanager.records.sweep.sweep_record import read_sweep_record
from runmanager.tracking.tensorboard.logdir import SweepLogdir

from ...tracking.board import LOADER, begin
from ..programs.script.conftest import Folder, folder  # noqa: F401

SCRIPT = """
import argparse, sys, runmanager
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
lr = parser.parse_args().lr
runmanager.log(score=lr)
if lr == 0.3 and not __import__("pathlib").Path("fixed").exists():
    sys.exit(1)
"""


def test_a_removed_cell_is_left_out_and_restored_and_a_renamed_sweep_continued(
    folder: Folder,  # noqa: F811
) -> None:
    folder.write("train.py", SCRIPT)
    words = ("sweep", "--name", "first", "train.py", "lr=0.1,0.2,0.3")
    assert folder.run(*words).status == 1
    sweep = SweepPaths(folder.path / "outputs" / "first")
    (removed,) = [name for name in run_names(sweep) if name.startswith("lr_0.1")]
    assert folder.run("rm", f"first/{removed}", "--yes").status == 0
    again = folder.run(*words)
    assert again.status == 1
    assert "1 cell was removed and is left out; `--restore` runs what was removed again." in again.out
    assert removed not in run_names(sweep)
    alone = folder.run("sweep", "--name", "first", "train.py", "lr=0.1")
    assert (alone.status, alone.err.count("\n")) == (2, 1)
    assert "Every cell of the command was removed from first" in alone.err
    nameless = folder.run("sweep", "--restore", "train.py", "lr=0.1")
    assert (nameless.status, "`--restore` must be given with a sweep's name" in nameless.err) == (2, True)

    assert folder.run("mv", "first", "second").status == 0
    (folder.path / "fixed").touch()
    sweep = SweepPaths(folder.path / "outputs" / "second")
    finished = {path: path.read_bytes() for path in sweep.runs.glob("lr_0.2*/run.json")}
    done = folder.run("sweep", "--name", "second", "--restore", "train.py", "lr=0.1,0.2,0.3")
    assert done.status == 0
    assert {path: path.read_bytes() for path in finished} == finished  # kept
    assert [name.partition("-")[0] for name in run_names(sweep)] == ["lr_0.1", "lr_0.2", "lr_0.3"]
    stored = json.loads(sweep.record.read_text())
    assert (stored["removed"], len(stored["cells"]), stored["command"]) == ([], 3, stored["commands"][-1])
    assert not (folder.path / "outputs" / "first").exists()


def test_a_custom_loop_leaves_a_removed_run_out_unless_it_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(**options: bool) -> list[int]:
        manager = RunManager(tmp_path / "outputs" / "loop", **options)
        epochs = []
        for lr in (0.1, 0.2):
            with manager.run({"lr": lr}, torch.nn.Linear(1, 1), LOADER) as run:
                epochs.append(len(list(run.epochs(2))))
        return epochs

    assert train() == [2, 2]
    sweep = SweepPaths(tmp_path / "outputs" / "loop")
    (first, _) = run_names(sweep)
    remove_run(sweep.run(first))
    capsys.readouterr()
    assert train() == [0, 0]
    assert f"{first.replace('lr_', 'lr=')}: was removed, left out" in capsys.readouterr().out
    assert run_names(sweep) != [first] and first not in run_names(sweep)
    assert train(overwrite=True) == [2, 2]
    plan = read_sweep_record(sweep)
    assert plan is not None and plan.removed == ()


def test_tensorboard_shows_a_renamed_sweep_without_its_removed_run(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "outputs" / "loop")
    begin(sweep, {"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3})
    remove_run(sweep.run(run_names(sweep)[0]))
    renamed = rename_sweep(sweep, "other")
    served = SweepLogdir(renamed, tmp_path_of(tmp_path, "served"))
    served.refresh()
    assert served.root.name == "other"
    assert sorted(path.name for path in served.root.iterdir()) == ["lr=0.2", "lr=0.3"]
    assert all(path.resolve().exists() for path in served.root.rglob("*"))


def tmp_path_of(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name
