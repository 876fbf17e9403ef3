"""Tests of `runmanager duel` of two commits, and of two environments."""

import csv
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep

from ..conftest import ROOT

TINY = ("dataset=fake", "dataset.size=64", "dataset.val_size=32", "batch_size=32", "device=cpu")
# Any interval is narrow enough, so that a busy machine does not matter.
SIDES = ("baseline", "candidate")
QUICK = ("measure.block_steps=2", "measure.min_rounds=6", "measure.half_width=0.9")
NET = """
import math
import torch

class Net(torch.nn.Module):
    def __init__(self, in_shape, num_classes):
        super().__init__()
        layers = torch.nn.Linear(math.prod(in_shape), {width}), torch.nn.Linear({width}, num_classes)
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), *layers)

    def forward(self, batch):
        return self.layers(batch)
"""
SCRIPT = """
import argparse, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("--base", type=float, default=0)
given = parser.parse_args()
print("loss:", given.base + {loss} + {loss} * 0.01 * given.seed)
"""


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository in `tmp_path` whose second commit changes a model and a script."""
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text("outputs\n__pycache__\n")
    for width, loss in ((8, 1), (9, 2)):
        (tmp_path / "net.py").write_text(NET.format(width=width))
        (tmp_path / "train.py").write_text(SCRIPT.format(loss=loss))
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", str(width))
    return tmp_path


def test_two_commits_take_turns_each_in_its_own_worktree(process: Callable, project: Path) -> None:
    model = ("model=custom", "model._target_=net.Net")
    revisions = ("--baseline-rev", "HEAD~1", "--candidate-rev", "main")
    words = (*revisions, *model, *TINY, *QUICK, "name=d", "--fail-if", "slower:99%")
    done = process("duel", *words, OMP_NUM_THREADS="1")
    assert done.status == 0, done.err
    assert "`runmanager watch outputs/d-candidate` shows the progress" in done.err
    first, second, answer, verdict = done.out.splitlines()
    commits = git(project, "rev-parse", "HEAD~1", "HEAD").split()
    assert first == f"baseline: HEAD~1 ({commits[0][:10]}) imported 1 file of its worktree: net.py."
    assert second == f"candidate: main ({commits[1][:10]}) imported 1 file of its worktree: net.py."
    assert answer.startswith("sweep=d-candidate is ") and "rounds side by side in " in answer
    assert verdict.startswith("`--fail-if slower:99%` passed: ")
    (old,), (new,) = (read_sweep(SweepPaths(project / "outputs" / name)).runs for name in ("d-baseline", "d-candidate"))
    assert [run.record.environment.commit for run in (old, new)] == commits
    assert old.record.signature == new.record.signature and old.record.num_parameters != new.record.num_parameters
    assert {turn.session for turn in old.turns} == {turn.session for turn in new.turns}
    places = {(turn.session, turn.round, turn.place) for run in (old, new) for turn in run.turns}
    assert len(places) == len(old.turns) + len(new.turns)  # one at a time
    assert git(project, "worktree", "list").count("\n") == 1
    with (project / "outputs" / "d-candidate" / "results.csv").open(newline="") as lines:
        assert [row["status"] for row in csv.DictReader(lines)] == ["finished"]
    # The comparison of the two sweeps is that of the duel, which no drift of the machine reaches.
    compared = process("compare", "d-baseline", "d-candidate", "--format", "json")
    assert '"axis": "sweep"' in compared.out and "commit differs" in compared.out
    assert "one side ran after the other" not in compared.out


PARTS = ("runmanager", "conf")
OLDER = "6a4d8caf"
"""The last commit whose processes sent each other objects of this package's classes."""


@pytest.fixture
def older_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of that commit, and its configuration."""
    folder = tmp_path_factory.mktemp("older")
    found = subprocess.run(["git", "archive", OLDER, *PARTS], cwd=ROOT, capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"needs a clone that has commit {OLDER}")
    subprocess.run(["tar", "x", "-C", folder], input=found.stdout, check=True)
    return folder


@pytest.mark.parametrize("is_newer", [True, False])
def test_two_versions_of_this_package_take_turns(
    process: Callable, older_version: Path, tmp_path: Path, is_newer: bool
) -> None:
    """The command itself is of the second commit's version: the newer or the older one."""
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text("outputs\n__pycache__\n")
    for source in (older_version, ROOT) if is_newer else (ROOT, older_version):
        for part in PARTS:
            shutil.rmtree(tmp_path / part, ignore_errors=True)
            shutil.copytree(source / part, tmp_path / part)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", "a version")
    done = process("duel", "--baseline-rev", "HEAD~1", "--candidate-rev", "HEAD", *TINY, *QUICK, "name=d")
    assert done.status == 0, done.err
    assert "rounds side by side in " in done.out
    (one,), (other,) = (read_sweep(SweepPaths(tmp_path / "outputs" / f"d-{side}")).runs for side in SIDES)
    assert one.record.environment.commit != other.record.environment.commit
    assert {turn.session for turn in one.turns} == {turn.session for turn in other.turns} != set()
    assert re.findall(r"imported (\d+) files of its worktree: runmanager/", done.out) != []


def test_whole_runs_of_a_script_alternate(process: Callable, project: Path) -> None:
    python = ("--baseline-python", sys.executable, "--candidate-python", sys.executable)
    words = (
        "--baseline-rev",
        "HEAD~1",
        *python,
        "--scalar",
        r"loss=loss: (\S+)",
        "train.py",
        "seed=1,2,3",
        "--fail-if",
        "worse:loss:0.5",
    )
    done = process("duel", *words, "--", "--base", "40")
    assert done.status == 1, done.err + done.out
    assert "`--fail-if worse:loss:0.5` failed: " in done.out
    assert "in run_seconds" in done.out or "by run_seconds" in done.out  # whole runs are compared by their time
    assert "one side ran after the other" not in done.out
    assert "candidate: HEAD" in done.out and "imported 1 file of its worktree: train.py." in done.out
    runs = [
        (run.record.started_at or "", run.record.ended_at or "", folder.name)
        for folder in (project / "outputs").iterdir()
        for run in read_sweep(SweepPaths(folder)).runs
    ]
    runs.sort()
    assert len(runs) == 6
    folders = (project / "outputs").iterdir()
    assert all(run.record.summary["loss"] > 40 for each in folders for run in read_sweep(SweepPaths(each)).runs)
    assert all(one[1] <= other[0] for one, other in pairwise(runs))  # one at a time
    assert all(one[2] != other[2] for one, other in zip(runs[::2], runs[1::2], strict=True))


def test_a_side_that_imports_the_project_from_elsewhere_is_refused(process: Callable, project: Path) -> None:
    package = project / "src" / "mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "package")
    installed = project.parent / f"{project.name}-env" / "site-packages"
    (installed / "mine").mkdir(parents=True)
    (installed / "mine" / "__init__.py").write_text("")
    before = f"import os; os.environ['PYTHONPATH'] += os.pathsep + {str(installed)!r}"
    done = process("duel", "--baseline-rev", "HEAD", *TINY, before=before)
    assert done.status == 2
    assert f"The baseline must import the project from its own worktree, got {installed}/mine/__init__.py" in done.err
    assert not (project / "outputs").exists() and git(project, "worktree", "list").count("\n") == 1
    # What leads into the repository leads into the worktree, so a folder on PYTHONPATH is not an obstacle.
    nothing = process("duel", "--baseline-rev", "HEAD", "lr=x", before=before.replace(str(installed), f"{project}/src"))
    assert nothing.status == 2 and "own worktree" not in nothing.err and "got no run of the " in nothing.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--baseline-rev", "nowhere"), "must be a commit of"),
        (("--candidate-rev", "HEAD"), "`--candidate-rev` must go with `--baseline-rev`"),
        (("--baseline-python", "/nowhere/python", "lr=1"), "The interpreter of the baseline must start"),
        (("--baseline-rev", "HEAD", "--name", "a", "name=b"), "`name` must be given once"),
        (("--baseline-rev", "HEAD", "measure=single"), "`measure` must be paired in a duel"),
        (("--baseline-rev", "HEAD", "--fail-if", "fast"), "`--fail-if` must be a condition"),
        (("lr=1", "lr=2", "--fail-if", "slower:x"), "must end in a number"),
        (("lr=1", "lr=2", "--", "x"), "`--` must be followed by arguments of a script, got `-- x` without a script."),
    ],
)
def test_faults_are_refused(process: Callable, project: Path, words: tuple[str, ...], expected: str) -> None:
    done = process("duel", *words)
    assert done.status == 2 and expected in done.err
    assert not (project / "outputs").exists()
