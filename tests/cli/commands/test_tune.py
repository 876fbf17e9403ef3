"""`runmanager tune`: real races, their answer, and what is refused."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runmanager.cli.main import run_command
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep
from runmanager.records.sweep.sweep_record import read_sweep_record

from ...processes import discard, wait_for_output, wait_until

CLI = [sys.executable, "-c", "from runmanager.cli.main import main; main()"]
PARTS = """
import time

import torch
from torch.utils.data import Dataset


class Slow(Dataset):
    num_classes = 2

    def __init__(self, train):
        self.train = train

    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(0.01 * self.train)
        return torch.zeros(1, 4, 4), index % 2


class Net(torch.nn.Module):
    def __init__(self, in_shape, num_classes):
        super().__init__()
        if torch.get_num_threads() == 3:
            raise MemoryError("three are too many")
        self.layer = torch.nn.Linear(16, num_classes)

    def forward(self, images):
        return self.layer(images.flatten(1))
"""
SCRIPT = """
import argparse
import time

parser = argparse.ArgumentParser()
parser.add_argument("--delay", type=float, default=0)
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()
time.sleep(arguments.delay)
if arguments.seed == 7:
    raise SystemExit("not with seven")
"""
APPLICATION = """
import time
from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore

ConfigStore.instance().store(name="config", node={"delay": 0, "seed": 0, "word": "a b"})


@hydra.main(version_base=None, config_name="config")
def main(cfg):
    marks = Path(__file__).with_name("marks").open("ab", buffering=0)
    marks.write(b"begin ")
    time.sleep(cfg.delay)
    marks.write(b"end ")
    if cfg.seed == 7:
        raise ValueError("not with seven")


if __name__ == "__main__":
    main()
"""


def tune(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    variables = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "240"}
    return subprocess.run(
        [*CLI, "tune", *words], cwd=folder, env=variables, capture_output=True, text=True, timeout=300
    )


def test_a_job_bound_by_its_input_gets_workers_and_a_preset(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    job = ("dataset=custom", "dataset._target_=parts.Slow", "model=custom", "model._target_=parts.Net", "batch_size=4")
    done = tune(
        tmp_path, *job, "device=cpu", "channels_last=false", "micro_batch=null", "num_workers=0,2", "threads=1,3",
        *("--seconds", "60", "--output-root", "kept", "name=race"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.rstrip().splitlines()
    answer = lines[max(index for index, line in enumerate(lines) if not line) + 1 :]
    assert re.match(r"\d\.\d\d times \[\d\.\d\d, \d\.\d\d\] as fast as with dataset=custom ", answer[0])
    command = shlex.split(answer[1])
    assert command[:2] == ["runmanager", "run"] and {*job, "num_workers=2", "hydra.launcher.threads=1"} <= set(command)
    assert not any(word.startswith(("name=", "output_root=", "hydra.sweeper")) for word in command)
    assert answer[2].endswith("runmanager sweep experiment=tuned") and len(answer) == 3
    assert "out_of_memory: MemoryError: three are too many" in done.stdout
    assert "Not raced: graphs: only cuda captures steps." in lines

    kept = json.loads((tmp_path / "kept" / "race" / "tune.json").read_text())
    assert kept["chosen"]["num_workers"] == "2" and kept["gain"]["low"] > 1
    assert kept["command"] == answer[1].strip()
    assert {each["result"] for each in kept["raced"]} == {"taken", "failed"}

    plan = subprocess.run(
        [*CLI, "sweep", "experiment=tuned", "--dry-run"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert plan.returncode == 0, plan.stderr
    for words, rule in ((["--save", "tuned"], "`--save` must be a new name"), (["name=kept"], "`name` must be a new")):
        again = tune(tmp_path, *words, "--output-root", ".")
        assert again.returncode == 2 and rule in again.stderr


def test_whole_runs_of_a_script_race(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SCRIPT)
    done = tune(tmp_path, "slow.py", "delay=1,0", "seed=1,7", "--seconds", "60", "--output-root", "kept")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.rstrip().splitlines()
    assert "as fast as with delay=1 seed=1" in lines[-2]
    assert lines[-1].strip() == "runmanager run slow.py delay=0 seed=1"
    assert any(
        "seed=7" in line and "failed: exit: the script ended with status 1: not with seven" in line for line in lines
    )
    (sweep,) = (tmp_path / "kept").iterdir()
    record = read_sweep_record(SweepPaths(sweep))
    assert record is not None and record.command == (
        *("runmanager", "tune", "--seconds", "60", "--output-root", "kept"),
        *("slow.py", "delay=1,0", "seed=1,7"),
    )
    speeds = {run.record.config["delay"] for run in read_sweep(SweepPaths(sweep)).runs}
    assert speeds == {1, 0}


def test_whole_runs_that_take_too_long_are_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SCRIPT)
    done = tune(tmp_path, "slow.py", "delay=2,1", "--seconds", "3", "--output-root", "kept")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"Nothing was measured(; `--seconds \d+` should do)?\.", done.stdout.rstrip().splitlines()[-1])
    assert not list((tmp_path / "kept").glob("*/runs/*/attempts"))


def test_a_script_that_fails_as_it_is_given_is_not_raced_further(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SCRIPT)
    done = tune(tmp_path, "slow.py", "seed=7,1", "delay=0,1", "--seconds", "60")
    assert done.returncode == 1, done.stderr
    failure = "exit: the script ended with status 1: not with seven"
    last = done.stdout.rstrip().splitlines()[-1]
    assert last == f"The settings given failed ({failure}), so nothing could be raced against them."
    assert "Not raced: delay: the settings given failed." in done.stdout


def test_a_job_that_fails_as_it_is_given_ends_alike(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(PARTS.replace("if torch.get_num_threads() == 3", "if True"))
    job = ("dataset=custom", "dataset._target_=parts.Slow", "model=custom", "model._target_=parts.Net", "batch_size=4")
    done = tune(tmp_path, *job, "device=cpu", "num_workers=0,2")
    assert done.returncode == 1 and "The settings must run to be raced, got out_of_memory" in done.stderr


def test_whole_runs_of_a_hydra_application_race(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(APPLICATION)
    words = (
        "train.py",
        "delay=1,0",
        "seed=1,7",
        "word='c d'",
        *("hydra.launcher.threads=1", "hydra.launcher.workers=2", "hydra.launcher.on_error=stop"),
        "--",
        "--config-name=config",
    )
    done = tune(tmp_path, "--seconds", "60", *words)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.rstrip().splitlines()
    assert "as fast as with delay=1 seed=1 word='c d'" in lines[-2]
    assert any("seed=7" in line and "failed: exception: ValueError: not with seven" in line for line in lines)
    marks = (tmp_path / "marks").read_text().split()
    assert marks == ["begin", "end"] * (len(marks) // 2), "runs disturbed one another"
    command = shlex.split(lines[-1])
    assert command == [
        *("runmanager", "run", "train.py", "delay=0", "seed=1", "word='c d'", "--"),
        *("hydra.launcher.threads=1", "hydra.launcher.workers=2", "hydra.launcher.on_error=stop"),
        "--config-name=config",
    ]
    plan = subprocess.run([*CLI, *command[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert plan.returncode == 0 and "1 run: 1 finished." in plan.stdout, plan.stderr


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("delay=1,1", "`delay` must have each value once in a race, got 1 again."),
        ("word=a,'a'", "The values of a race must differ from each other"),
    ],
)
def test_values_of_an_application_that_are_equal_are_refused(tmp_path: Path, word: str, message: str) -> None:
    (tmp_path / "train.py").write_text(APPLICATION)
    done = tune(tmp_path, "train.py", word)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


WAITS = """
import time
from pathlib import Path

def wait():
    Path("waits").touch()
    while True:
        time.sleep(0.01)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["slow.py", "delay=0,1"],
        [
            *("dataset=custom", "dataset._target_=parts.Slow", "model=custom", "model._target_=parts.Net"),
            *("device=cpu", "batch_size=4", "num_workers=0", "threads=1,3"),
        ],
    ],
)
def test_ctrl_c_shows_what_is_known(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "waiting.py").write_text(WAITS)
    waiting = "import waiting\n"
    (tmp_path / "slow.py").write_text(waiting + SCRIPT.replace("time.sleep(arguments.delay)", "waiting.wait()"))
    (tmp_path / "parts.py").write_text(
        waiting + PARTS.replace('raise MemoryError("three are too many")', "waiting.wait()")
    )
    process = subprocess.Popen(
        [*CLI, "tune", *words, "--output-root", "kept", "--seconds", "600"],
        cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_until((tmp_path / "waits").exists)
        process.send_signal(signal.SIGINT)
        out, err = wait_for_output(process)
    finally:
        discard(process)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    lines = out.rstrip().splitlines()
    assert "Interrupted: this is what is known so far." in lines
    assert lines[-1] == "Nothing was measured, as the race was interrupted."
    assert "not measured: the race was interrupted" in out
    assert "To resume" not in out and "A race is not resumed: the same command begins a new one." in lines
    (folder,) = (tmp_path / "kept").iterdir()
    assert json.loads((folder / "tune.json").read_text())["is_interrupted"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lr=0.1,0.2"], "`lr` must have one value in a race, got 2;"),
        (["--seconds", "0"], "`--seconds` must be a number above 0, got 0."),
        (["--seconds", "nan"], "`--seconds` must be a number above 0, got nan."),
        (["--seconds", "inf"], "`--seconds` must be a number above 0, got inf."),
        (["--allow", "lr"], "`--allow` must name a setting that changes results, got lr;"),
        (["threads=x"], "`threads` must be numbers of at least 1, such as 1,2, got x."),
        (["--python", "python3"], "`--python` must be given with a script, got none;"),
        (["model=no"], "model"),
        (["experiment=zero_to_gans", "--save", "mine"], "a preset holds no other preset"),
        (["hydra/launcher=slurm"], "`hydra/launcher` must be local for a race"),
        (["none.py", "lr=1,2"], "none.py"),
        (["num_workers=0,2,0"], "`num_workers` must have each value once in a race, got 0 again."),
        (["threads=1,1"], "`threads` must have each value once in a race, got 1 again."),
        (["slow.py", "delay=1,0,1"], "`delay` must have each value once in a race, got 1 again."),
    ],
)
def test_what_cannot_be_raced_is_refused(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(SCRIPT)
    assert run_command(["tune", *words]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "outputs").exists()
