"""Sweeps of scripts as users start them: cells, records, deaths, reruns, kills."""

import json
import os
import signal
from typing import Any

import psutil
import pytest

from runmanager.cli.main import run_command
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.gpus import find_gpus
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import read_sweep
from runmanager.results.program_files.folder_metrics import metrics_by_step
from runmanager.results.tfevents.reader import read_event_files

from ....processes import wait_for_output, wait_until
from .conftest import Folder
from .death_script import DEATHS, ENDS, SCALARS, WAYS


def sweep_of(folder: Folder, name: str) -> SweepPaths:
    return SweepPaths(folder.path / "outputs" / name)


def records_of(folder: Folder, name: str) -> dict[Any, RunRecord]:
    """The records of a sweep by the value of the only axis."""
    paths = sweep_of(folder, name)
    (axis,) = json.loads(paths.record.read_text())["axes"]
    return {run.record.config[axis]: run.record for run in read_sweep(paths).runs}


def begun(folder: Folder) -> list[str]:
    return sorted(path.name for path in (folder.path / "begun").glob("*"))


@pytest.fixture
def deaths(folder: Folder) -> Folder:
    folder.write("train.py", DEATHS)
    return folder


def test_every_death_is_told_truly_and_a_rerun_keeps_what_has_finished(deaths: Folder) -> None:
    words = ("sweep", "--name", "first", "--workers", "2", *SCALARS, "train.py")
    words += (f"way={','.join(WAYS)}", "lr=4e-1", "fast=true", "log-dir={run_dir}/logs", "--", "fit", "--lr=9")
    done = deaths.run(*words)
    assert done.status == 1, done.err
    records = records_of(deaths, "first")
    assert {way: (str(each.status), each.reason, each.message) for way, each in records.items()} == ENDS

    fine = records["fine"]
    paths = sweep_of(deaths, "first").run(fine.name)
    arguments = ["fit", "--lr=9", "--way=fine", "--lr=4e-1", "--fast", f"--log-dir={paths.root}/logs"]
    assert paths.log.read_text().splitlines()[0] == f"{json.dumps(arguments)} 1 False"
    assert f"\rAccuracy: {4}/5" * 2 in paths.log.read_bytes().decode()
    assert fine.summary == {"loss": 0.1, "val/acc": 0.8} and fine.origins == dict.fromkeys(fine.summary, "printed")
    assert fine.config["lr"] == 0.4 and fine.config["fast"] is True and fine.config["log-dir"] == "{run_dir}/logs"
    assert fine.config["script"] == {"program": "train.py", "arguments": ["fit", "--lr=9"]}
    assert set(fine.environment.code or {}) == {"train.py"}
    assert fine.cell_command == (
        *("runmanager", "run", *SCALARS, "train.py"),
        *("way=fine", "lr=4e-1", "fast=true", 'log-dir="{run_dir}/logs"', "--", "fit", "--lr=9"),
    )
    series = read_event_files([paths.events]).scalars if paths.events else {}
    assert [round(value, 6) for value in series["loss"].values] == [0.4, 0.2, 0.133333, 0.1]
    assert list(series["val/acc"].steps) == [1, 2, 3, 4] and series["val/acc"].values[-1] == pytest.approx(0.8)
    error = sweep_of(deaths, "first").run(records["raises"].name).error.read_text()
    assert error.count("Traceback") == 2 and "ValueError" in error and error.startswith("Traceback")
    assert records["diverges"].summary == {"loss": None, "val/acc": 0.8}

    first = {way: each.started_at for way, each in records.items()}
    (deaths.path / "begun").rename(deaths.path / "before")
    assert deaths.run(*words).status == 1
    again = records_of(deaths, "first")
    assert len(begun(deaths)) == len(WAYS) - 1
    assert [way for way, each in again.items() if each.started_at == first[way]] == ["fine"]
    assert {way: each.attempt for way, each in again.items()} == {way: 1 if way == "fine" else 2 for way in WAYS}


def test_a_plan_runs_nothing_and_equal_cells_are_one(deaths: Folder) -> None:
    words = ("sweep", "--name", "plan", "--dry-run", "train.py", "way=fine,raises", "lr=0.1,1e-1", "--", "fit")
    done = deaths.run(*words)
    assert done.status == 0, done.err
    assert "2 cells of the grid equal others" in done.out and "2 cells: 2 start" in done.out
    assert not (deaths.path / "outputs").exists() and begun(deaths) == []


REFUSED = [
    (("sweep", "train.py", "wy=fine", "lrr=1", "--", "fit"), ["did you mean '--way'?", "did you mean '--lr'?"]),
    (("sweep", "train.py", "learning_rate=1", "--", "fit"), ["did you mean '--lr'?"]),
    (("sweep", "--dry-run", "train.py", "kind=b,c", "lr=1,2", "--", "fit"), ["`kind` must be one of a, b, as the"]),
    (("sweep", "train.py", "lr=1", "--dry-run"), ["`command` must be given, as train.py requires it, got none; add c"]),
    (("sweep", "train.py", "lr=1", "--dryrun"), ["did you mean '--dry-run'?"]),
    (("sweep", "train.py", "--lr", "1"), ["a setting is written lr=1, a fixed"]),
    (
        ("sweep", "--dryrun", "train.py", "lr=1"),
        ["`--dryrun` must be an option of runmanager, got an unknown one; did you mean '--d"],
    ),
    (("run", "--epochs", "train.py", "lr=1"), ["`--epochs` must be an option of runmanager, got an unknown one"]),
    (("sweep", "--resume-with", "log-dri=x.pt", "train.py", "--", "fit"), ["`log-dri` must be a flag"]),
    (("run", "train.py", "lr=1,2", "--", "fit"), ["use `runmanager sweep`"]),
    (("sweep", "--unsigned", "lr", "train.py", "lr=1,2", "--", "fit"), ["does not distinguish runs"]),
    (("sweep", "--unsigned", "x*", "--device", "y", "train.py", "lr=1"), ["--unsigned x*", "--device"]),
    (("sweep", "--scalar", "a=(", "train.py"), ["regular expression"]),
    (("sweep", "--metric", "quality", "train.py"), ["`--better` must be given"]),
    (("sweep", "--better", "up", "--resume", "must", "train.py"), ["--name", "max, min"]),
    (("sweep", "--workers", "0", "train.py"), ["`--workers` must be at least 1"]),
    (("sweep", "--slurm", "time=3", "train.py"), ["--launcher slurm"]),
    (("sweep", "--launcher", "slurm", "--gpus", "0", "--slurm", "tme=3", "train.py"), ["--gpus-per-run"]),
    (("sweep", "--launcher", "slurm", "--workers", "2", "--slurm", "tme=3", "train.py"), ["'time'"]),
    (
        ("sweep", "--launcher", "slurm", "--workers", "2", "--slurm", "array_parallelism=3", "train.py"),
        ["`--workers` must be given once"],
    ),
    (("sweep", "--argument", "{name}", "train.py"), ["--argument"]),
    (("sweep", "none.py", "lr=1"), ["does not exist"]),
    (("sweep", "-m", "no.such_module", "lr=1"), ["neither in"]),
    (("run", "train.py", "device=cuda", "--", "fit"), ["device"]),
    (("run", "--unchecked", "train.py", "fast=false", "--", "fit"), ["fast=false"]),
    (("run", "--unchecked", "train.py", "device=cuda", "--", "fit"), ["cuda"]),
]


def test_what_cannot_be_run_is_refused_before_anything_runs(
    deaths: Folder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(deaths.path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for words, faults in REFUSED:
        status = run_command(words)
        lines = capfd.readouterr().err.splitlines()
        assert status == 2, words
        assert len(lines) == len(faults) and all(line.startswith("error: ") for line in lines), lines
        assert all(any(fault in line for line in lines) for fault in faults), lines
    assert begun(deaths) == [] and not (deaths.path / "outputs").exists()


HIDDEN = """
import colorsys, sys
lr = int(sys.argv[1].removeprefix("--lr="))
1 / lr
if lr == 1:
    colorsys.rgb_to_hsv(1, 1, 1)
if lr == 2:
    from colorsys import rgb_to_hsv
import colorsys.fast
"""


def test_a_module_that_hides_a_standard_one_is_named_beside_the_error(folder: Folder) -> None:
    (folder.path / "code").mkdir()
    folder.write("code/train.py", HIDDEN)
    folder.write("code/colorsys.py", "pass")
    done = folder.run("sweep", "--name", "hidden", "code/train.py", "lr=0,1,2,3")
    assert done.status == 1
    messages = {lr: each.message for lr, each in records_of(folder, "hidden").items()}
    assert messages.pop(0) == "ZeroDivisionError: division by zero"
    assert messages[1].startswith("AttributeError: module 'colorsys' has no attribute 'rgb_to_hsv'")
    assert messages[2].startswith("ImportError: cannot import name 'rgb_to_hsv' from 'colorsys'")
    assert messages[3].startswith("ModuleNotFoundError: No module named 'colorsys.fast'")
    said = "; colorsys.py next to the script takes the place of Python's own colorsys; rename it"
    assert all(message.endswith(said) for message in messages.values())
    assert messages[1] in done.out


OWN_STATISTICS = """
def check(lr):
    {"1": bad_value, "2": missing_attribute, "3": missing_import}[lr]()

def bad_value():
    raise ValueError("lr must be above 1: check of 'statistics.check'")

def missing_attribute():
    object().statistics

def missing_import():
    from json import statistics
"""


def test_a_module_like_a_standard_one_is_not_blamed_for_an_error_that_does_not_name_it(folder: Folder) -> None:
    (folder.path / "code").mkdir()
    folder.write("code/train.py", "import statistics, sys\nstatistics.check(sys.argv[1].removeprefix('--lr='))\n")
    folder.write("code/statistics.py", OWN_STATISTICS)
    folder.run("sweep", "--name", "own", "code/train.py", "lr=1,2,3")
    messages = {lr: each.message for lr, each in records_of(folder, "own").items()}
    assert messages[1] == "ValueError: lr must be above 1: check of 'statistics.check'"
    assert messages[2] == "AttributeError: 'object' object has no attribute 'statistics'"
    assert messages[3].startswith("ImportError: cannot import name 'statistics' from 'json'")
    assert not [message for message in messages.values() if "takes the place" in message]


TYPED = """
import argparse, os
devices = ["cpu"] if os.environ.get("CUDA_VISIBLE_DEVICES") == "" else ["cpu", "cuda"]
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--device", choices=devices)
parser.add_argument("--log", type=argparse.FileType("w"))
parser.parse_args()
"""


def test_no_value_is_passed_to_the_script_before_its_run(folder: Folder) -> None:
    folder.write("train.py", TYPED)
    (folder.path / "results.txt").write_text("of a week")
    planned = folder.run("sweep", "--dry-run", "train.py", "lr=0.1,abc", "device=cpu,cuda", "log=results.txt")
    assert planned.status == 0, planned.err
    fixed = folder.run(
        "sweep", "--dry-run", "train.py", "lr=0.1,0.2", "--", "--log", "results.txt", "--log=results.txt"
    )
    assert fixed.status == 0, fixed.err
    assert (folder.path / "results.txt").read_text() == "of a week"


def test_a_value_that_the_script_refuses_fails_its_cell_in_the_words_of_the_script(folder: Folder) -> None:
    folder.write("train.py", TYPED)
    done = folder.run("sweep", "--name", "typed", "train.py", "lr=0.1,abc")
    said = "the script ended with status 2: train.py: error: argument --lr: invalid float value: 'abc'"
    assert done.status == 1 and said in done.out
    assert {lr: each.message for lr, each in records_of(folder, "typed").items()} == {0.1: "", "abc": said}


def test_a_cell_whose_device_is_missing_is_neither_started_nor_counted(folder: Folder) -> None:
    folder.write("train.py", TYPED)
    words = ("sweep", "--name", "devices", "--workers", "2", "train.py", "device=cpu,cuda")
    done = folder.run(*words)
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "1 run to do, 1 cell skipped (no cuda here), in outputs/devices"
    assert lines[1] == "[1/1] device=cpu started"
    assert not [line for line in lines if "device=cuda started" in line]
    assert str(records_of(folder, "devices")["cuda"].status) == "skipped"


def test_a_sweep_says_which_values_its_runs_lack_as_other_runs_were_given_scalar(folder: Folder) -> None:
    folder.write("train.py", "print('acc: 0.5')")
    named, read = ("sweep", "--name", "read"), ("--scalar", r"acc=acc: (\S+)")
    assert folder.run(*named, *read, "train.py", "lr=1,2").status == 0
    planned = folder.run(*named, "--dry-run", "train.py", "lr=1,2,3")
    said = (
        "Earlier runs of outputs/read were given --scalar 'acc=acc: (\\S+)', new ones are not and may lack these "
        "values; add the same words to this command."
    )
    assert said in planned.out.splitlines()
    assert "Earlier runs" not in folder.run(*named, "train.py", "lr=1,2").out


# Says how often it has run, and prints a series that no word calls a metric, and one that does.
COUNTED = """
import sys
from pathlib import Path

runs = Path("runs.txt")
runs.write_text(f"{runs.read_text() if runs.exists() else ''}{sys.argv[1:]}\\n")
for epoch in range(1, 4):
    print(f"epoch {epoch} fitness {epoch / 4} of {epoch / 8} val_acc {epoch / 10} (3.1 it/s)")
"""


def test_another_scalar_reads_the_stored_output_of_finished_cells(folder: Folder) -> None:
    folder.write("train.py", COUNTED)
    named, cells = ("sweep", "--name", "read", "--unchecked"), ("train.py", "lr=1,2")
    assert folder.run(*named, *cells).status == 0
    ran = (folder.path / "runs.txt").read_text()
    assert [each.summary for each in records_of(folder, "read").values()] == [{"val_acc": 0.3}] * 2
    shown = folder.run("scalars", "read")
    assert "--scalar 'fitness=fitness" in shown.out and "it/s" not in shown.out, shown.out
    for expression, value in ((r"fitness (\S+)", 0.75), (r"of (\S+)", 0.375)):
        fit = ("--scalar", f"fit={expression}")
        planned = folder.run(*named, *fit, "--dry-run", *cells)
        said = "2 finished runs' output is searched again for what --scalar names; nothing trains again."
        assert said in planned.out.splitlines(), planned.out
        done = folder.run(*named, *fit, *cells)
        assert done.status == 0 and said in done.out.splitlines(), done.err
        records = records_of(folder, "read").values()
        assert [each.summary for each in records] == [{"fit": value, "val_acc": 0.3}] * 2
        assert {each.origins["fit"] for each in records} == {"printed"}
        run = sweep_of(folder, "read").run(next(iter(records)).name)
        points = metrics_by_step(run, {"fit": "printed", "val_acc": "printed"})
        assert list(points["fit"].values()) == [value / 3, value / 3 * 2, value] and len(points["val_acc"]) == 3
        assert "searched again" not in folder.run(*named, *fit, *cells).out
    assert (folder.path / "runs.txt").read_text() == ran, "something trained again"
    assert folder.run("best", "read", "--metric", "val_acc").out.count("val_acc is what the program printed") == 1
    assert "of the whole run, printed" in folder.run("show", "read/lr=1").out


def test_another_expression_for_a_metric_of_finished_runs_is_refused(folder: Folder) -> None:
    folder.write("train.py", "print('acc: 0.5 of 50')")
    named = ("sweep", "--name", "read", "--unchecked")
    given, other, none = (("--scalar", rf"acc={each}") for each in (r"acc: (\S+)", r"of (\S+)", r"nothing (\S+)"))
    assert folder.run(*named, *none, "train.py", "lr=1,3", "--", *other).status == 0
    assert folder.run(*named, *given, "train.py", "lr=2", "--", *other).status == 0  # the others match nothing
    for resume in ("auto", "never"):  # of another cell, whose output is not searched again
        refused = folder.run(*named, *other, "--resume", resume, "train.py", "lr=3")
        said = r"error: `--scalar acc=of (\S+)` must have the expression that finished runs of this sweep were given,"
        assert refused.status == 2 and refused.err.startswith(rf"{said} `acc=acc: (\S+)`, got another;"), refused.err
    assert folder.run(*named, *other, "--resume", "never", "train.py", "lr=2", "--", *other).status == 0
    assert [each.summary or None for each in records_of(folder, "read").values()] == [None, None, {"acc": 50}]


def test_kept_cells_with_one_reason_share_a_line(folder: Folder) -> None:
    words = ("sweep", "--name", "kept", "train.py", "lr=1,2,3")
    folder.write("train.py", "print('acc: 0.5')")
    assert folder.run(*words).status == 0
    folder.write("train.py", "print('acc: 0.6')")
    lines = [line for line in folder.run(*words).out.splitlines() if "with other versions" in line]
    assert len(lines) == 1 and lines[0].startswith("lr=1 and 2 others: finished, with other versions: code changed")


# Trains for four epochs from its checkpoint; waits before the third one while `gate` exists, with a child of its own.
RESUMES = """
import subprocess, sys, time
from pathlib import Path

settings = dict(word.split("=", 1) for word in sys.argv[1:])
checkpoint = Path(settings["out"], "last.txt")
done = int(Path(settings["resume"]).read_text()) if "resume" in settings else 0
with open("epochs.txt", "a") as file:
    print("begins", settings["lr"], done, file=file, flush=True)
    child = subprocess.Popen(["sleep", "1000"])
    for epoch in range(done, 4):
        while epoch == 2 and settings["lr"] == "1" and Path("gate").exists():
            Path("waiting").write_text(f"{child.pid}")
            time.sleep(0.01)
        print(settings["lr"], epoch, file=file, flush=True)
        print("loss", 4 - epoch)
        checkpoint.write_text(f"{epoch + 1}")
    child.kill()
"""
RESUMING = (
    *("sweep", "--name", "kills", "--argument", "{name}={value}", "--resume-with", "resume={run_dir}/last.txt"),
    *("--scalar", r"loss=loss (\d+)", "train.py", "lr=0,1", "out={run_dir}"),
)


def trained(folder: Folder) -> list[str]:
    return [line for line in (folder.path / "epochs.txt").read_text().splitlines() if not line.startswith("begins")]


def wait_at_the_gate(folder: Folder) -> tuple[RunRecord, psutil.Process]:
    """Wait until the second cell waits; return its record and the child of its script."""
    waiting = folder.path / "waiting"
    pid = wait_until(lambda: waiting.exists() and waiting.read_text())
    return records_of(folder, "kills")[1], psutil.Process(int(pid))


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("victim", ["run", "script", "driver", "interrupt"])
def test_a_killed_cell_takes_all_its_processes_along_and_is_resumed(folder: Folder, victim: str) -> None:
    folder.write("train.py", RESUMES)
    (folder.path / "gate").touch()
    driver = folder.start(*RESUMING)
    record, child = wait_at_the_gate(folder)
    assert record.status == "running" and record.owner is not None
    wait_until(lambda: records_of(folder, "kills")[1].summary == {"loss": 3})
    script = child.parent()
    assert script is not None and script.ppid() == record.owner.pid
    numbers = {"run": record.owner.pid, "script": script.pid, "driver": driver.pid, "interrupt": driver.pid}
    os.kill(numbers[victim], signal.SIGINT if victim == "interrupt" else signal.SIGKILL)
    _, err = wait_for_output(driver)
    assert driver.returncode == {"driver": -signal.SIGKILL, "interrupt": 130}.get(victim, 1), err
    for process in (script, child):
        wait_until(lambda process=process: is_gone(process))
    ends = {"driver": ("crashed", "vanished"), "interrupt": ("killed", "interrupted")}
    ended = wait_until(lambda: (now := records_of(folder, "kills")[1].observed()).status.is_ended and now)
    assert (ended.status, ended.reason) == ends.get(victim, ("killed", "signal"))
    assert ended.summary == {"loss": 3}
    earlier_seconds = ended.run_seconds or 0.0

    (folder.path / "gate").unlink()
    done = folder.run(*RESUMING)
    assert done.status == 0, done.err
    assert sorted(trained(folder)) == [f"{lr} {epoch}" for lr in (0, 1) for epoch in range(4)]
    ended = records_of(folder, "kills")[1]
    assert (ended.status, ended.attempt, ended.summary) == ("finished", 2, {"loss": 1})
    assert ended.run_seconds is not None and ended.run_seconds > earlier_seconds
    paths = sweep_of(folder, "kills").run(ended.name)
    assert paths.events is not None
    (series,) = read_event_files([paths.events]).scalars.values()
    assert list(series.steps) == [1, 2, 3, 4] and list(series.values) == [4, 3, 2, 1]


DIES_AT_ITS_END = """
import os, signal, sys
from pathlib import Path

settings = dict(word.split("=", 1) for word in sys.argv[1:])
if "resume" not in settings:
    print("loss 0.1234567890123 acc 0.5")
    Path(settings["out"], "last.txt").touch()
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
print("acc 0.75")
"""


def test_a_resumed_script_that_has_nothing_left_to_print_keeps_what_it_printed_last(folder: Folder) -> None:
    folder.write("train.py", DIES_AT_ITS_END)
    options = ("--name", "kills", "--argument", "{name}={value}", "--resume-with", "resume={run_dir}/last.txt")
    scalars = ("--scalar", r"loss=loss (\S+)", "--scalar", r"acc=acc (\S+)")
    words = ("sweep", *options, *scalars, "train.py", "lr=1,2", "out={run_dir}")
    assert folder.run(*words).status == 1
    done = folder.run(*words)
    assert done.status == 0, done.err
    for record in records_of(folder, "kills").values():
        assert (record.status, record.attempt) == ("finished", 2)
        assert record.summary == {"loss": 0.1234567890123, "acc": 0.75}
        assert "--scalar loss: an earlier attempt printed the value, this one printed none" in (record.notes or [])


HOLDS_MEMORY = """
import sys, time
from pathlib import Path

settings = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
held = bytearray(int(settings["mib"]) * 2**20)
print("held 1")
while '"held"' not in Path(settings["out"], "run.json").read_text():  # until its supervisor has seen it
    time.sleep(0.01)
"""


@pytest.mark.skipif(bool(find_gpus()), reason="what a script used is not known where there are GPUs")
def test_memory_is_that_of_the_script_alone(folder: Folder) -> None:
    folder.write("train.py", HOLDS_MEMORY)
    words = ("--name", "memory", "--unchecked", "--scalar", r"held=held (\d)", "train.py", "mib=1,200", "out={run_dir}")
    assert folder.run("sweep", *words).status == 0
    small, large = (records_of(folder, "memory")[mib].peak_memory_bytes for mib in (1, 200))
    assert small is not None and large is not None
    assert small < 60 * 2**20, "a supervisor's libraries need more"
    assert 200 * 2**20 <= large < 260 * 2**20


def test_a_file_that_hides_a_standard_module_is_named(folder: Folder) -> None:
    folder.write("train.py", "import argparse\nargparse.ArgumentParser().parse_args()\n")
    folder.write("queue.py", "")
    done = folder.run("sweep", "--dry-run", "train.py")
    assert done.status == 0, done.err
    assert "queue.py next to the script has the name of a module of Python's standard library" in done.out


def test_a_worker_that_cannot_be_pickled_is_told_with_the_way_out(folder: Folder) -> None:
    start = "import multiprocessing\nmultiprocessing.get_context('spawn').Process(target=lambda: 0).start()\n"
    folder.write("train.py", start)
    assert folder.run("sweep", "--name", "spawn", "train.py", "lr=1,2").status == 1
    record = records_of(folder, "spawn")[1]
    assert (record.status, record.reason) == ("failed", "exception")
    assert "pickle" in record.message and "; the start method spawn must pickle what a worker" in record.message
