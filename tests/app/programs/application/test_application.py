"""Sweeps of a Hydra application that never imports this package, as real commands."""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import read_record

from ....processes import TIMEOUT_SECONDS, discard, wait_for_output, wait_until
from .conftest import UNGUARDED, VARIABLES, Application

WAYS = "fine,raises,exits,stops,is killed,needs memory,diverges"


def test_every_end_is_told_truly_and_a_rerun_does_only_what_is_missing(application: Application) -> None:
    words = ("hydra.sweeper.name=first", f"way={WAYS}", "hydra.launcher.workers=2", "hydra.sweeper.metric=score")
    done = application.run(*words)
    assert done.status == 1, done.err
    records = application.by_setting("first", "way")
    ends = {way: (str(each.status), str(each.reason or "")) for way, each in records.items()}
    assert ends == {
        "fine": ("finished", ""),
        "raises": ("failed", "exception"),
        "exits": ("failed", "exit"),
        "stops": ("finished", ""),
        "is killed": ("killed", "signal"),
        "needs memory": ("failed", "out_of_memory"),
        "diverges": ("failed", "diverged"),
    }
    assert records["raises"].message == "ValueError: an unlucky rate"
    fine = records["fine"]
    assert fine.summary == {"score": 0.05, "loss": 0.1}
    assert fine.origins == {"score": "returned", "loss": "returned"}
    assert any("words" in line for line in fine.notes)
    assert set(fine.environment.code or {}) == {"train.py", "parts.py"}
    assert fine.config["name"] == "a setting of the application" and fine.config["copy"].startswith("${")
    folder = application.sweep("first").run(fine.name)
    log = folder.log.read_text()
    assert "printed by the task" in log and f"logged by the task at lr=0.1 in {folder.name}" in log
    assert (folder.root / "own.txt").exists() and (folder.root / ".hydra" / "overrides.yaml").exists()
    error = application.sweep("first").run(records["raises"].name).error.read_text()
    assert error.splitlines()[1].strip().startswith(f'File "{application.folder}/train.py"')
    assert len(application.table("first")) == 7 and all(row["device"] == "" for row in application.table("first"))
    assert application.plan("first")["axes"] == {"way": WAYS.split(",")}

    (application.folder / "calm").touch()
    before = len(application.started())
    assert application.run(*words).status == 0
    again = application.started()[before:]
    assert sorted(again) == sorted(
        ["0.1 raises 2", "0.1 exits 2", "0.1 is killed 2", "0.1 needs memory 2", "0.1 diverges 2"]
    )
    records = application.by_setting("first", "way")
    assert {str(each.status) for each in records.values()} == {"finished"}
    killed, failed = (application.sweep("first").run(records[way].name).root for way in ("is killed", "raises"))
    assert not (killed / "attempts").exists()  # its files stay where it may continue from them
    assert (failed / "attempts" / "1" / "own.txt").exists()
    assert len(records["is killed"].earlier) == 1 and records["raises"].earlier == ()


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_main_function_may_be_called_without_a_guard(application: Application, ranks: int) -> None:
    (application.folder / "train.py").write_text(UNGUARDED)
    words = ("hydra.sweeper.name=bare", "lr=0.1,0.2", f"hydra.launcher.processes_per_run={ranks}")
    done = application.run(*words)
    assert (done.status, done.err) == (0, "")
    assert [str(each.status) for each in application.records("bare")] == ["finished", "finished"]
    assert sorted(application.started()) == sorted(["0.1 fine 1", "0.2 fine 1"] * ranks)


def test_our_command_sweeps_a_script_without_a_guard(application: Application) -> None:
    (application.folder / "train.py").write_text(UNGUARDED)
    start = "from runmanager.cli.main import main; main()"
    command = [sys.executable, "-c", start, "sweep", "--name", "bare", "train.py", "lr=0.1,0.2"]
    variables = {**os.environ, **VARIABLES}
    done = subprocess.run(command, cwd=application.folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(application.started()) == ["0.1 fine 1", "0.2 fine 1"]


@pytest.fixture
def gate(application: Application) -> Path:
    """While it exists, each task waits."""
    script = application.folder / "train.py"
    wait = (
        "def wait_here():\n    import time\n    while Path('gate').exists():\n        time.sleep(0.01)\n\n\n@hydra.main"
    )
    text = script.read_text().replace('    way = "fine"', "    wait_here()\n    way = 'fine'")
    script.write_text(text.replace("@hydra.main", wait, 1))
    gate = application.folder / "gate"
    gate.touch()
    return gate


@pytest.fixture
def driver(application: Application, gate: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], RunRecord]]]:
    """Start a sweep of two cells; return its process and the record of the first cell, which waits."""
    processes = []

    def start(name: str) -> tuple[subprocess.Popen[str], RunRecord]:
        command = application.command(f"hydra.sweeper.name={name}", "lr=0.1,0.2")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, cwd=application.folder, text=True, **pipes)  # type: ignore[call-overload]
        processes.append(process)
        wait_until(lambda: bool(application.started()))
        (running,) = application.records(name)
        assert str(running.status) == "running"
        return process, running

    yield start
    for process in processes:
        discard(process)


def test_a_killed_driver_leaves_a_sweep_that_the_next_command_completes(
    application: Application, driver: Callable[..., Any], gate: Path
) -> None:
    process, running = driver("killed")
    process.kill()
    process.wait(TIMEOUT_SECONDS)
    wait_until(lambda: running.owner.is_alive() is False)
    assert read_record(application.sweep("killed").run(running.name)).observed().status == "crashed"
    gate.unlink()
    assert application.run("hydra.sweeper.name=killed", "lr=0.1,0.2").status == 0
    assert application.started() == ["0.1 fine 1", "0.1 fine 2", "0.2 fine 1"]
    assert [str(each.status) for each in application.records("killed")] == ["finished", "finished"]


def test_ctrl_c_interrupts_the_task(application: Application, driver: Callable[..., Any], gate: Path) -> None:
    process, _ = driver("stopped")
    process.send_signal(signal.SIGINT)
    out, _ = wait_for_output(process)
    assert process.returncode == 130, out
    assert "Stopping: the program is asked to end (SIGTERM); Ctrl-C again stops at once." in out.splitlines()
    (record,) = application.records("stopped")
    assert (str(record.status), str(record.reason)) == ("killed", "interrupted")
    assert not application.sweep("stopped").run(record.name).error.exists()
    gate.unlink()
    assert application.run("hydra.sweeper.name=stopped", "lr=0.1,0.2").status == 0
    assert application.started() == ["0.1 fine 1", "0.1 fine 2", "0.2 fine 1"]


def test_all_cells_are_checked_before_the_first_runs(application: Application) -> None:
    done = application.run("lr=0.1,???", "+other=${nothing},${oc.env:NO_SUCH_VARIABLE}")
    assert done.status == 2
    lines = done.err.splitlines()
    assert "error: `lr` must be given, got nothing; add `lr=…`." in lines
    assert sum("`other` must have a value" in line for line in lines) == 2
    assert application.started() == [] and not (application.folder / "outputs").exists()
    done = application.run("lrr=0.1,0.2", "model=bgi,small")
    assert done.status == 2 and done.err.splitlines() == [
        "error: `model` must be one of big, small, got bgi; did you mean 'big'?",
        "error: `lrr` must be a setting, got an unknown name; did you mean 'lr'?",
    ]
    done = application.run("hydra.launcher.workers=0", "lr=1")
    assert (done.status, done.err) == (2, "error: `hydra.launcher.workers` must be at least 1, got 0.\n")
    done = application.run(
        "hydra.sweeper.better=max", "hydra.sweeper.resume=must", "hydra.sweeper.resume_with=last.ckpt"
    )
    assert done.status == 2 and len(done.err.splitlines()) == 3
    assert "must be left to" in application.run("hydra.sweep.dir=elsewhere").err
    done = application.run("+hydra.sweeper.nam=first", "lr=1")
    assert done.status == 2 and "`hydra.sweeper.nam` must be a setting of Hydra, got an unknown name;" in done.err


def test_dry_run_and_one_cell(application: Application) -> None:
    done = application.run("hydra.sweeper.name=one", "hydra.sweeper.dry_run=true")
    assert done.status == 0 and "1 start" in done.out
    assert application.started() == [] and not (application.folder / "outputs").exists()
    assert application.run("hydra.sweeper.name=one", "hydra.sweeper.quiet=true").out == ""
    (record,) = application.records("one")
    assert record.name.startswith("run-") and str(record.status) == "finished"
    assert application.run("hydra.sweeper.name=one").status == 0
    assert application.started() == ["0.1 fine 1"]  # the same cell later: the clock does not count


def test_unsigned_settings_equal_cells_and_groups(application: Application) -> None:
    glob = "hydra.sweeper.unsigned=[checkpoint.*]"
    done = application.run(glob, "hydra.sweeper.name=cells", "model=small,big", "checkpoint.every=1,2")
    assert done.status == 0, done.err
    assert "2 cells are equal to another one, and run once with it." in done.out
    assert sorted(record.settings["model.width"] for record in application.records("cells")) == [8, 80]
    assert application.plan("cells")["axes"] == {"model": ["small", "big"], "checkpoint.every": [1, 2]}
    assert {record.unsigned for record in application.records("cells")} == {("checkpoint.every",)}
    done = application.run(glob, "checkpoint.every=1,2")
    assert done.status == 2 and "`checkpoint.every` must have one value" in done.err


def test_environment_variables_count_by_their_values(application: Application) -> None:
    words = ("hydra.sweeper.name=home", "+home=${oc.env:MY_HOME}", "+login=${oc.env:MY_TOKEN}")

    def run(*more: str, home: str, token: str) -> tuple[int, str]:
        cache = str(application.folder / "cache")
        done = application.run(*words, *more, MY_HOME=home, MY_TOKEN=token, XDG_CACHE_HOME=cache)
        assert done.status == 0, done.err
        return len(application.started()), done.out

    assert run(home="here", token="a secret")[0] == 1
    (record,) = application.records("home")
    assert isinstance(record.variables, dict) and record.variables["MY_HOME"] == "here"
    assert "a secret" not in application.sweep("home").run(record.name).record.read_text()
    assert run(home="here", token="a secret")[0] == 1
    started, out = run(home="here", token="another")
    assert started == 1 and "the secret MY_TOKEN has changed" in out
    started, out = run("hydra.sweeper.dry_run=true", home="there", token="a secret")
    assert started == 1 and "MY_HOME has another value now" in out
    assert run(home="there", token="a secret")[0] == 2
    assert run("hydra.sweeper.unsigned=[home]", home="anywhere", token="a secret")[0] == 3  # another identity


def test_a_variable_that_is_set_or_removed_has_another_value(application: Application) -> None:
    words = ("hydra.sweeper.name=home", "+home=${oc.env:MY_HOME,nowhere}", "+login=${oc.env:MY_TOKEN,none}")
    assert application.run(*words).status == 0
    done = application.run(*words, MY_TOKEN="a secret")
    assert "the secret MY_TOKEN has changed" in done.out and len(application.started()) == 1
    done = application.run(*words, "hydra.sweeper.dry_run=true", MY_HOME="here")
    assert "the environment variable MY_HOME is set now" in " ".join(done.out.split())
    assert application.run(*words, MY_HOME="here").status == 0 and len(application.started()) == 2
    assert "MY_HOME is not set now" in " ".join(application.run(*words, "hydra.sweeper.dry_run=true").out.split())
    assert application.run(*words).status == 0 and len(application.started()) == 3


@pytest.mark.parametrize(
    ("folder", "quote"),
    [("${hydra.runtime.output_dir}", "'"), ("${hydra:runtime.output_dir}", "'"), ("${hydra.runtime.output_dir}", "")],
)
def test_a_killed_cell_gets_the_override_that_resumes_it(application: Application, folder: str, quote: str) -> None:
    resume = f"hydra.sweeper.resume_with={quote}+ckpt_path={folder}/own.txt{quote}"
    words = ("hydra.sweeper.name=resumed", "way=is killed,raises", resume)
    assert application.run(*words).status == 1
    (application.folder / "calm").touch()
    assert application.run(*words).status == 0
    records = application.by_setting("resumed", "way")
    killed, failed = (application.sweep("resumed").run(records[way].name).root for way in ("is killed", "raises"))
    assert (killed / "own.txt").read_text() == str(killed / "own.txt")
    assert (failed / "own.txt").read_text() == "None"  # it starts again
    assert "ckpt_path" not in records["is killed"].config


def test_changed_code_is_named_and_rerun_on_request(application: Application) -> None:
    source = application.folder / "src"  # the names of its files are relative to it, not to the current folder
    source.mkdir()
    for name in ("train.py", "parts.py", "conf"):
        (application.folder / name).rename(source / name)
    words = ("hydra.sweeper.name=code", "lr=0.1,0.2")
    assert application.run(*words, script="src/train.py").status == 0
    unchanged = application.run(*words, script="src/train.py")
    assert unchanged.status == 0 and "code changed" not in unchanged.out
    (source / "parts.py").write_text("def halved(number):\n    return number / 3\n")
    done = application.run(*words, script="src/train.py")
    assert "lr=0.1 and 1 other: finished, with other versions: code changed (parts.py)" in done.out
    assert len(application.started()) == 2
    assert application.run(*words, "hydra.sweeper.rerun_changed=true", script="src/train.py").status == 0
    assert len(application.started()) == 4


def test_other_launchers_of_hydra_record_the_same(application: Application) -> None:
    submitit = ("submitit_local",) if importlib.util.find_spec("submitit") else ()  # with make test-matrix
    for launcher in ("basic", *submitit, "joblib"):
        words = (f"hydra/launcher={launcher}", f"hydra.sweeper.name={launcher}", "way=fine,raises")
        assert application.run(*words).status == 1
        records = application.by_setting(launcher, "way")
        assert str(records["fine"].status) == "finished" and records["fine"].summary == {"score": 0.05, "loss": 0.1}
        assert (str(records["raises"].status), str(records["raises"].reason)) == ("failed", "exception")
        assert any(f"hydra/launcher={launcher}" in line for line in records["fine"].notes)
    (application.folder / "calm").touch()
    before = len(application.started())
    assert application.run(*words).status == 0
    assert application.started()[before:] == ["0.1 raises 2"]
    folder = application.sweep("joblib").run(application.by_setting("joblib", "way")["raises"].name).root
    assert (folder / "train.log").exists() and (folder / "attempts" / "1" / "own.txt").exists()


def test_commands_read_such_a_sweep(application: Application) -> None:
    ranked = ("hydra.sweeper.metric=score", "hydra.sweeper.better=min")
    assert application.run("hydra.sweeper.name=read", *ranked, "lr=0.1,0.2").status == 0
    name = next(iter(Path(application.sweep("read").runs).iterdir())).name

    def runmanager(*words: str) -> str:
        done = subprocess.run(
            [application.command()[0], "-c", "from runmanager.cli.main import main; main()", *words],
            cwd=application.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "2 finished" in runmanager("watch", "outputs/read")
    assert "printed by the task" in runmanager("show", f"outputs/read/runs/{name}")
    lr = name.partition("-")[0].replace("_", "=")  # as the run's name has it, unlike its folder
    command = f"python train.py -m hydra/sweeper=runmanager {' '.join(ranked)} {lr}"
    assert f"python train.py -m hydra/sweeper=runmanager {' '.join(ranked)} lr=0.1" in runmanager(
        "best", "outputs/read"
    )
    reproduced = runmanager("reproduce", f"outputs/read/runs/{name}")
    assert command in reproduced
    short = name.rpartition("-")[2]
    assert f"with hydra.sweeper.dry_run=true, runs nothing and names the run: the name ends in {short} if it does" in (
        " ".join(reproduced.split())
    )
    planned = application.run(lr, "hydra.sweeper.dry_run=true")
    assert f"-{short} " in planned.out and len(application.started()) == 2
    assert application.sweep("read").report.exists()


def test_a_cell_on_a_missing_device_is_skipped(application: Application) -> None:
    done = application.run("hydra.sweeper.name=devices", "+device=cuda,cpu")
    assert done.status == 0, done.err
    records = application.by_setting("devices", "device")
    assert (str(records["cuda"].status), str(records["cuda"].reason)) == ("skipped", "device_unavailable")
    assert str(records["cpu"].status) == "finished" and application.started() == ["0.1 fine 1"]
    settings = ("+trainer.accelerator=gpu", "hydra.sweeper.name=lightning")
    assert application.run(*settings).status == 0  # whichever it finds
    assert application.run("+where=cuda", "hydra.sweeper.device=where", "hydra.sweeper.dry_run=true").status == 0
    done = application.run("+where=cuda", "hydra.sweeper.device=wehre", "hydra.sweeper.dry_run=true")
    assert done.status == 2
    assert done.err.startswith("error: `hydra.sweeper.device` must name a setting, got wehre; did you mean 'where'")


def test_an_unsigned_setting_that_does_not_exist_is_refused(application: Application) -> None:
    plan = ("+where=here", "+paths.data=a", "lr=0.1,0.2", "hydra.sweeper.dry_run=true")
    for known in ("where", "wh*", "paths", "paths.data"):
        assert application.run(*plan, f"hydra.sweeper.unsigned=[{known}]").status == 0
    done = application.run(*plan, "hydra.sweeper.unsigned=[where,wehre,path.*]")
    assert done.status == 2
    faults = [line.partition(" must name settings, got ") for line in done.err.splitlines()]
    assert [fault[0] for fault in faults] == ["error: `hydra.sweeper.unsigned`"] * 2
    assert faults[0][2].startswith("wehre; did you mean 'where'") and faults[1][2].startswith(
        "path.*; did you mean 'paths.data'"
    )


def test_an_unsigned_setting_of_the_configuration_may_belong_to_another_choice(application: Application) -> None:
    plan = ("lr=0.1,0.2", "hydra.sweeper.dry_run=true")
    with (application.folder / "conf" / "config.yaml").open("a") as file:
        file.write("hydra: {sweeper: {unsigned: [model.cache_dir]}}\n")
    done = application.run(*plan)
    assert done.status == 0, done.err
    assert application.run(*plan, "hydra.sweeper.unsigned=[model.cache_dir]").status == 2


def test_the_command_of_a_cell_names_its_own_unsigned_settings(application: Application) -> None:
    (application.folder / "conf" / "model" / "big.yaml").write_text("width: 80\ncache_dir: here\n")
    with (application.folder / "conf" / "config.yaml").open("a") as file:
        file.write("hydra: {sweeper: {unsigned: [lr]}}\n")
    words = ("model=small,big", "hydra.sweeper.unsigned=[model.cache_dir]", "hydra.sweeper.name=both")
    assert application.run(*words).status == 0
    for width, record in application.by_setting("both", "model.width").items():
        command = list(record.cell_command or ())
        assert any("model.cache_dir" in word for word in command) == (width == 80)
        done = application.run(*command[command.index("-m") + 1 :], "hydra.sweeper.name=both")
        assert done.status == 0, done.err
    assert len(application.started()) == 2  # the same cells


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_a_task_prints_by_the_names_of_metrics_is_found_unasked(application: Application, ranks: int) -> None:
    script = application.folder / "train.py"
    said = """
    print(f"epoch 1 | Loss: {cfg.lr} | val_acc 0.75 | score 0.5")
    log.info("margin_loss %s", cfg.margin_loss)
"""
    script.write_text(script.read_text().replace('    print("printed by the task")\n', said))
    words = ("hydra.sweeper.name=said", "way=fine,raises", "+margin_loss=0.2")
    done = application.run(*words, f"hydra.launcher.processes_per_run={ranks}")
    assert done.status == 1
    records = application.by_setting("said", "way")
    assert records["fine"].summary == {"score": 0.05, "loss": 0.1, "val_acc": 0.75}
    assert records["fine"].origins == {"score": "returned", "loss": "returned", "val_acc": "printed"}
    assert records["raises"].summary == {"Loss": 0.1, "val_acc": 0.75, "score": 0.5}
