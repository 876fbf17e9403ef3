"""Ways to start a script: as a module, on GPU slots, within limits, as a Hydra application, on another interpreter."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import read_sweep

from .conftest import Folder

# Waits until as many cells are here as `partners` says, unless it hangs for ever.
MODULE = """
import argparse, json, os, sys, time
from pathlib import Path
from . import helper

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("--partners", type=int, default=0)
parser.add_argument("--hangs", action="store_true")
args = parser.parse_args()
Path("here").mkdir(exist_ok=True)
Path("here", str(args.seed)).touch()
until = time.monotonic() + 100
while args.hangs or len(list(Path("here").iterdir())) < args.partners:
    if time.monotonic() > until:
        raise TimeoutError
    time.sleep(0.01)
print(json.dumps([os.environ["CUDA_VISIBLE_DEVICES"], sys.executable, os.getcwd()]))
"""


def records_of(folder: Folder, name: str) -> list[RunRecord]:
    return [run.record for run in read_sweep(SweepPaths(folder.path / "outputs" / name)).runs]


@pytest.fixture
def package(folder: Folder) -> Folder:
    folder.write("own/__init__.py", "")
    folder.write("own/helper.py", "")
    folder.write("own/train.py", MODULE)
    return folder


def test_a_module_runs_on_gpu_slots_with_another_interpreter(package: Folder) -> None:
    python = package.path / "python"  # another path is another interpreter, with versions of its own
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    words = ("--python", str(python), "--gpus", "5,7", "--workers", "2", "-m", "own.train", "seed=1,2", "partners=2")
    done = package.run("sweep", "--name", "gpus", *words)
    assert done.status == 0, done.err
    records = records_of(package, "gpus")
    logs = [SweepPaths(package.path / "outputs" / "gpus").run(each.name).log.read_text() for each in records]
    seen = [json.loads(log) for log in logs]
    assert sorted(gpus for gpus, _, _ in seen) == ["5", "7"]
    assert {folder for _, _, folder in seen} == {str(package.path)}
    for each in records:
        assert set(each.environment.code or {}) == {"own/__init__.py", "own/helper.py", "own/train.py"}
        assert each.environment.python == ".".join(map(str, sys.version_info[:3]))
        assert "torch" in each.environment.libraries
        assert each.config["script"] == {"program": "-m own.train"}
    again = package.run("sweep", "--name", "gpus", "--dry-run", *words)
    assert again.status == 0 and "2 cells: 2 keep" in again.out, again.out + again.err
    package.write("own/helper.py", "changed = True")
    changed = package.run("sweep", "--name", "gpus", "--dry-run", "--rerun-changed", *words)
    assert "2 start again" in changed.out and "own/helper.py" in changed.out, changed.out

    run = SweepPaths(package.path / "outputs" / "gpus").run(records[0].name).root
    reproduced = package.run("reproduce", str(run.relative_to(package.path)))
    assert (
        f"runmanager run --python {python} -m own.train seed={records[0].config['seed']} partners=2" in reproduced.out
    )


def test_a_limit_ends_a_script_and_a_retry_is_another_attempt(package: Folder) -> None:
    done = package.run("run", "--name", "late", "--timeout", "0.5", "--retries", "1", "-m", "own.train", "hangs=true")
    assert done.status == 1, done.err
    (record,) = records_of(package, "late")
    assert (record.status, record.reason, record.attempt) == ("killed", "timeout", 2)
    assert "retried (2 of 2)" in done.out
    words = ("run", "-m", "own.train", "hangs=true", "--name", "quiet", "--stall-timeout", "0.5")
    assert package.run(*words).status == 1
    (record,) = records_of(package, "quiet")
    assert (record.status, record.reason) == ("killed", "stalled")


APPLICATION = """
import hydra
from omegaconf import DictConfig

@hydra.main(version_base=None, config_path=None, config_name=None)
def main(cfg: DictConfig) -> float:
    return cfg.lr * 2

if __name__ == "__main__":
    main()
"""


def test_a_hydra_application_is_started_as_one(folder: Folder) -> None:
    folder.write("train.py", APPLICATION)
    plugins = Path(__file__).resolve().parents[4] / "runmanager" / "plugins"
    path = os.pathsep.join([str(plugins.parents[1]), str(plugins)])
    words = ("sweep", "--name", "app", "--workers", "2", "--metric", "twice", "--better", "max", "train.py", "+lr=1,3")
    done = folder.run(*words, PYTHONPATH=path)
    assert done.status == 0, done.err
    records = records_of(folder, "app")
    assert {(each.config["lr"], (each.summary or {})["twice"]) for each in records} == {(1, 2.0), (3, 6.0)}
    assert all("script" not in each.config for each in records)
    refused = folder.run("sweep", "--scalar", "a=(b)", "--unchecked", "train.py", "+lr=1", PYTHONPATH=path)
    assert refused.status == 2
    assert [line.partition(" must")[0] for line in refused.err.splitlines()] == [
        "error: `--scalar`",
        "error: `--unchecked`",
    ]
    refused = folder.run("sweep", "--processes", "1,2", "train.py", "+lr=1", PYTHONPATH=path)
    assert refused.status == 2 and "`--processes` must be one number of at least 1 for train.py" in refused.err
    misspelled = ("hydra.sweeper.nam=x", "+hydra.launcher.worker=2", "hydra.sweeper.params.a=1", "lr=1")
    refused = folder.run("sweep", "train.py", *misspelled, PYTHONPATH=path)
    assert refused.status == 2 and refused.err.splitlines() == [
        "error: `hydra.sweeper.nam` must be a setting of Hydra, got an unknown name; did you mean 'name' or 'seed_name'?",  # noqa: E501
        "error: `hydra.launcher.worker` must be a setting of Hydra, got an unknown name; did you mean 'workers'?",
    ]


def test_words_of_the_built_in_job_are_never_taken_for_a_script(folder: Folder) -> None:
    """The options of a script are none of the built-in job's, whose words may look like them."""
    for words in (("-m", "lr=0.1"), ("lr=0.1", "model.file=train.py"), ("--cfg", "job", "train.py")):
        done = folder.run("sweep", *words, "--dry-run" if words[0] != "--cfg" else "lr=1")
        assert "Python file" not in done.err and not (folder.path / "outputs").exists(), done.err
    done = folder.run("sweep", "--name", "first", "lr=0.1", "--dry-run")
    assert done.status == 0 and "Where: outputs/first/runs" in done.out


def test_the_commit_is_that_of_the_script_whatever_the_caller_says(folder: Folder) -> None:
    def git(where: str, *words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(folder.path / where), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    script = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--seed')\nparser.parse_args()\n"
    odd = os.fsdecode(b"theirs/caf\xe9.txt")
    for where, name in ((".", "here.txt"), ("theirs", odd)):
        folder.write("theirs/train.py", script)
        folder.write(name, "1")
        git(where, "init", "--quiet")
        git(where, "add", Path(name).name, *(["train.py"] if where == "theirs" else []))
        git(where, "commit", "--quiet", "-m", where)
    git("theirs", "config", "core.quotePath", "false")
    folder.write(odd, "2")
    caller = {"GIT_DIR": str(folder.path / ".git"), "GIT_WORK_TREE": str(folder.path), "GIT_INDEX_FILE": "/nowhere"}
    assert folder.run("sweep", "--name", "hook", "theirs/train.py", "seed=1", **caller).status == 0
    (record,) = records_of(folder, "hook")
    assert (record.environment.commit, record.environment.commit_clean) == (git("theirs", "rev-parse", "HEAD"), False)
    assert folder.run("sweep", "--name", "bare", "theirs/train.py", "seed=1", PATH="/nowhere").status == 0
    assert "unknown: git is not installed" in folder.run("show", "bare", "seed=1").out
    assert "unknown: git is not installed" in (folder.path / "outputs" / "bare" / "report.html").read_text()


def test_a_sweep_begins_without_the_slow_library_that_typer_loads_for_options(folder: Folder) -> None:
    folder.write("train.py", "print('loss', 1)\n")
    done = folder.run("sweep", "--dry-run", "train.py", PYTHONPROFILEIMPORTTIME="1")
    assert done.status == 0, done.err
    assert "typer" in done.err and "pydantic" not in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--gpus", "GPU-1,GPU-2", "--launcher-option", "runs_per_gpu=2"), "GPU-2 is in exclusive mode"),
        (("--gpus", "0,1", "--launcher-option", "runs_per_gpu=2"), "GPU-2 is in exclusive mode"),
        (("--gpus", "MIG-1,MIG-2", "--gpus-per-run", "2"), "must be 1 on a GPU in slices, got 2"),
        (("--gpus", "GPU-1", "--launcher-option", "runs_per_gpu=2"), ""),
        (("--gpus", "GPU-2"), ""),
    ],
)
def test_gpus_in_exclusive_mode_and_in_slices_are_not_shared_as_others_are(
    folder: Folder, words: tuple[str, ...], told: str
) -> None:
    folder.write("train.py", "print('loss', 1)\n")
    modes = "echo 'GPU-1, Default'; echo 'GPU-2, Exclusive_Process'"
    folder.write("bin/nvidia-smi", f"#!/bin/sh\n{modes}\n").chmod(0o755)
    path = os.pathsep.join([str(folder.path / "bin"), os.environ["PATH"]])
    done = folder.run("sweep", "--workers", "2", *words, "train.py", PATH=path)
    assert (done.status, told in done.err) == (2 if told else 0, True), done.err
    assert (folder.path / "outputs").exists() == (not told)
