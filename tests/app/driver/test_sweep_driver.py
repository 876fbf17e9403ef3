"""Tests of whole sweeps: the main job's files, reruns, folders, presets, and other launchers."""

import csv
import datetime
import html
import importlib.metadata
import json
import re
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.app.compose.schema import conf_folder
from runmanager.records.run.status import Reason, Status
from runmanager.records.settings.values import flatten
from runmanager.records.storage.reader import read_epochs
from runmanager.records.storage.versioned_file import encode_record
from runmanager.records.sweep.sweep_record import fresh_sweep_folder

RESULT_COLUMNS = [
    "run",
    "status",
    "reason",
    "lr",
    "batch_size",
    "num_workers",
    "device",
    "epochs",
    "loss",
    "accuracy",
    "val_loss",
    "val_accuracy",
    "epoch_seconds",
    "epoch_seconds_iqr",
    "wall_seconds",
    "run_seconds",
    "samples_per_second",
    "data_seconds",
    "transfer_seconds",
    "compute_seconds",
    "eval_seconds",
    "tracking_seconds",
    "peak_memory_bytes",
    "num_parameters",
    "device_name",
    "contended",
    "started_at",
    "run_dir",
    "overall_samples_per_second",
]
EPOCH_COLUMNS = [
    "run",
    "epoch",
    "loss",
    "accuracy",
    "val_loss",
    "val_accuracy",
    "epoch_seconds",
    "wall_seconds",
    "run_seconds",
    "samples",
    "warmup",
    "data_seconds",
    "transfer_seconds",
    "compute_seconds",
    "eval_seconds",
    "tracking_seconds",
    "lr",
    "batch_size",
    "num_workers",
    "device",
]
COMPARISON_COLUMNS = [
    "lr",
    "batch_size",
    "num_workers",
    "axis",
    "baseline",
    "candidate",
    "baseline_samples_per_second",
    "candidate_samples_per_second",
    "speedup",
    "ci_low",
    "ci_high",
    "verdict",
    "reason",
    "baseline_epochs",
    "candidate_epochs",
]


def columns(path: Path) -> list[str]:
    with path.open(newline="") as lines:
        return next(csv.reader(lines))


def test_main_job_skips_missing_devices_and_succeeds(grid: Any) -> None:
    assert grid.done.status == 0, grid.done.err
    states = grid.sweep.states()
    assert len(states) == 8
    for name, state in states.items():
        expected = ("finished", None) if "device=cpu" in name else ("skipped", "device_unavailable")
        assert state == expected, name
    assert all("PyTorch sees no CUDA device" in each.message for each in grid.sweep.records if each.reason)


def test_main_job_writes_the_files_of_the_contract(grid: Any) -> None:
    root = grid.sweep.paths.root
    tables = [f"results.{kind}" for kind in ("csv", "json", "md", "html")]
    tables += [f"comparison.{kind}" for kind in ("csv", "json", "md")]
    assert sorted(each.name for each in root.iterdir()) == sorted(
        ["sweep.json", "messages.jsonl", "epochs.csv", "report.html", "runs", *tables]
    )
    for record in grid.sweep.records:
        folder = grid.sweep.paths.run(record.name).root
        names = {re.sub(r"(tfevents)\..*", r"\1", each.name) for each in folder.iterdir()}
        names = {name for name in names if not name.startswith(".")}
        finished = {"epochs.jsonl", "checkpoint.pt", "events.out.tfevents", "run.log"}
        assert names == {"run.json", "config.yaml"} | (finished if record.status == "finished" else set())


def test_main_job_names_folders_by_varying_settings_and_signature(grid: Any) -> None:
    for record in grid.sweep.records:
        values = [f"{key}={record.settings[key]}" for key in ("batch_size", "num_workers", "device")]
        assert record.name == ",".join(values) + "-" + record.signature[:8]
        assert re.fullmatch("[0-9a-f]{64}", record.signature)


def test_main_job_records_its_command_axes_and_host(grid: Any) -> None:
    said = json.loads(grid.sweep.paths.record.read_text())
    assert said["axes"] == {"batch_size": [16, 32], "num_workers": [0, 1], "device": ["cpu", "cuda"]}
    assert said["command"][:4] == ["python", "-m", "runmanager", "-m"] and "lr=0.01" in said["command"]
    assert said["command"][-1] == "model=logistic"
    settings = {each.signature: each.settings for each in grid.sweep.records}
    order = [tuple(settings[each][key] for key in ("batch_size", "num_workers", "device")) for each in said["cells"]]
    assert order == [(size, workers, device) for size in (16, 32) for workers in (0, 1) for device in ("cpu", "cuda")]


def test_the_metric_that_a_command_names_ranks_its_cells_in_the_direction_that_it_gives(
    command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    done = command("-m", *tiny, "epochs=1", "lr=0.1,0.2", "name=ranked", "--metric", "val_loss", "--better", "max")
    assert done.status == 0, done.err
    assert {tuple((each.better or {}).items()) for each in sweep("ranked").records} == {(("val_loss", "max"),)}
    losses = {row["lr"]: float(row["val_loss"]) for row in sweep("ranked").rows()}
    assert f"with lr={max(losses, key=losses.__getitem__)}." in done.out


def test_main_job_tables_have_the_columns_of_the_contract(grid: Any) -> None:
    root = grid.sweep.paths.root
    assert columns(root / "results.csv") == RESULT_COLUMNS
    assert columns(root / "epochs.csv") == EPOCH_COLUMNS
    assert columns(root / "comparison.csv") == COMPARISON_COLUMNS


def test_main_job_tables_have_every_run_epoch_and_pair(grid: Any) -> None:
    rows = grid.sweep.rows()
    assert [row["status"] for row in rows] == ["finished"] * 4 + ["skipped"] * 4
    seconds = [float(row["epoch_seconds"]) for row in rows[:4]]
    assert seconds == sorted(seconds)
    assert all((grid.sweep.paths.root / row["run_dir"] / "run.json").exists() for row in rows)
    epochs = [(row["run"], row["epoch"]) for row in grid.sweep.rows("epochs.csv")]
    assert len(epochs) == len(set(epochs)) == 8
    pairs = grid.sweep.rows("comparison.csv")
    assert {(row["batch_size"], row["num_workers"]) for row in pairs} == {(a, b) for a in ("16", "32") for b in "01"}
    assert {(row["baseline"], row["candidate"], row["verdict"]) for row in pairs} == {("cpu", "cuda", "not measured")}
    assert all("cuda: skipped (device_unavailable)" in row["reason"] for row in pairs)


def test_main_job_prints_tables_and_paths(grid: Any) -> None:
    assert "8 runs: 4 finished, 4 skipped." in grid.done.out
    assert "cuda and cpu could not be compared: cuda: skipped (device_unavailable)." in grid.done.out
    assert "outputs/grid/results.csv" in grid.done.out
    assert "runmanager tensorboard grid" in grid.done.out
    assert grid.done.err == ""


@pytest.fixture
def copied_grid(grid: Any, tmp_path: Path) -> Any:
    """A copy of the finished grid, for a test that adds to it."""
    shutil.copytree(grid.folder, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_rerun_keeps_what_is_finished_and_a_wider_grid_adds_cells(
    copied_grid: Path, command: Callable[..., Any], sweep: Callable[[str], Any]
) -> None:
    before = {each.name: each for each in sweep("grid").records}
    files = {name: sweep("grid").paths.run(name).record.read_bytes() for name in before}
    wider = ["-m", "lr=0.01,0.02", "batch_size=16", "num_workers=0", "device=cuda,cpu", "epochs=2", "name=grid"]
    done = command(*wider, *("dataset=fake", "dataset.size=64", "dataset.val_size=32", "model=logistic"))
    assert done.status == 0, done.err
    assert "1 run to do, 1 finished already, 2 cells skipped (no cuda here)" in done.out
    after = {each.name: each for each in sweep("grid").records}
    assert len(after) == 10
    for name, record in before.items():
        is_in_it = record.settings["num_workers"] == 0 and record.settings["batch_size"] == 16
        tried_again = record.status == "skipped" and is_in_it
        assert (sweep("grid").paths.run(name).record.read_bytes() == files[name]) is not tried_again
        assert after[name].status == record.status
    said = json.loads(sweep("grid").paths.record.read_text())
    assert said["axes"]["lr"] == [0.01, 0.02]
    assert len(said["cells"]) == len(set(said["cells"])) == 10
    assert len(sweep("grid").rows()) == 10


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda whole: whole.replace(b'"host": "', b'"host": "\xff'), "its text must be UTF-8, got the byte 0xff"),
        (lambda whole: b"", "run.json is damaged"),
        (None, "run.json must be a file, got nothing there"),
    ],
    ids=["not UTF-8", "empty", "missing"],
)
def test_a_damaged_or_missing_record_keeps_its_files_and_the_other_cells_run(
    command: Callable[..., Any],
    sweep: Callable[[str], Any],
    tiny: tuple[str, ...],
    damage: Callable[[bytes], bytes] | None,
    message: str,
) -> None:
    assert command("-m", *tiny, "lr=0.1", "name=torn").status == 0
    (record,) = sweep("torn").records
    folder = sweep("torn").paths.run(record.name)
    if damage is None:
        folder.record.unlink()
    else:
        folder.record.write_bytes(damage(folder.record.read_bytes()))
    before = {path: path.read_bytes() for path in folder.root.rglob("*") if path.is_file()}
    planned = command("-m", *tiny, "lr=0.1,0.2", "name=torn", "--dry-run")
    assert (planned.status, "2 cells: 1 refuse, 1 start" in planned.out, message in planned.out) == (0, True, True)
    done = command("-m", *tiny, "lr=0.1,0.2", "name=torn")
    assert (done.status, message in done.out) == (1, True), done.out
    assert "1 run to do, 1 refused" in done.out and "lr=0.1 started" not in done.out
    assert "move its folder away to run the cell again, or `runmanager rm` it and add `--restore`" in done.out
    assert {path: path.read_bytes() for path in folder.root.rglob("*") if path.is_file()} == before
    (other,) = sweep("torn").records
    assert (other.settings["lr"], other.status) == (0.2, "finished")


def test_a_finished_run_that_has_lost_epochs_is_kept_and_named(
    command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    cells = ("-m", *tiny, "lr=0.1,0.2", "name=cut")
    assert command(*cells).status == 0
    cut, whole = sweep("cut").records
    path = sweep("cut").paths.run(cut.name).epochs
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0])
    damage = "epochs.jsonl is damaged: the run finished with 2 lines in it, got 1"
    planned = command(*cells, "--dry-run").out
    assert "2 cells: 2 keep" in planned and f"{damage}; move its folder away to run the cell again" in planned
    done = command(*cells)
    assert (done.status, path.read_bytes(), damage in done.out) == (0, lines[0], True), done.out
    epochs = {row["run"]: (row["status"], row["epochs"], row["loss"] != "") for row in sweep("cut").rows()}
    assert epochs == {cut.name: ("finished", "", False), whole.name: ("finished", "2", True)}
    path.write_bytes(b"".join(lines))
    assert "damaged" not in command(*cells, "--dry-run").out


def test_a_killed_run_whose_epochs_cannot_be_read_starts_again_and_keeps_its_files(
    command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    cell = ("-m", *tiny, "lr=0.1", "name=torn")
    assert command(*cell).status == 0
    (record,) = sweep("torn").records
    paths = sweep("torn").paths.run(record.name)
    killed = msgspec.structs.replace(
        record, status=Status.KILLED, reason=Reason.SIGNAL, message="SIGKILL", num_records=msgspec.UNSET
    )
    paths.record.write_bytes(encode_record(killed))
    damaged = b"\x00" + paths.epochs.read_bytes()
    paths.epochs.write_bytes(damaged)
    assert paths.checkpoint.exists(), "it could be resumed"
    planned = " ".join(command(*cell, "--dry-run").out.split())
    assert "1 start again" in planned and "killed (signal); its epochs cannot be read" in planned
    done = command(*cell)
    assert done.status == 0, done.out
    (again,) = sweep("torn").records
    assert (again.status, again.attempt, len(read_epochs(paths, again))) == ("finished", 2, 2)
    assert (paths.attempts / "1" / paths.epochs.name).read_bytes() == damaged


def test_resume_never_runs_again_and_keeps_earlier_files(
    command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    for resume in ("auto", "never"):
        assert command("-m", *tiny, "lr=0.1", "name=one", f"resume={resume}").status == 0
        (record,) = sweep("one").records
        if resume == "auto":
            first = record
    assert record.status == "finished"
    assert (record.name, record.signature) == (first.name, first.signature)
    assert record.started_at > first.started_at
    (attempt,) = sweep("one").paths.run(record.name).attempts.iterdir()
    assert json.loads((attempt / "run.json").read_text())["started_at"] == first.started_at
    assert sweep("one").num_epochs(record) == 2
    # `must` finds it now, and nothing is left to do.
    before = sweep("one").paths.run(record.name).record.read_bytes()
    done = command("-m", *tiny, "lr=0.1", "name=one", "resume=must")
    assert (done.status, sweep("one").paths.run(record.name).record.read_bytes()) == (0, before)


def test_resume_must_requires_stored_runs(command: Callable[..., Any], tmp_path: Path, tiny: tuple) -> None:
    done = command(*tiny, "name=nothing", "resume=must")
    assert done.status == 2
    assert done.faults == [
        "error: `resume=must` must find runs in outputs/nothing, got none; leave it out to start.",
    ]
    assert not (tmp_path / "outputs").exists()


def test_one_name_in_two_folders_is_two_sweeps(command: Callable[..., Any], tmp_path: Path, tiny: tuple) -> None:
    for root in ("here", "there/deep"):
        assert command(*tiny, "epochs=1", "name=same", f"output_root={root}").status == 0
        assert (tmp_path / root / "same" / "report.html").exists()
    assert not (tmp_path / "outputs").exists()


def test_two_unnamed_sweeps_in_one_second_have_different_folders(
    command: Callable[..., Any], tmp_path: Path, tiny: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime.datetime(2026, 11, 1, 10, 0, 0)
    monkeypatch.setattr("runmanager.app.driver.sweep_driver.fresh_sweep_folder", partial(fresh_sweep_folder, now=at))
    for _ in range(2):
        done = command(*tiny, "epochs=1")
        assert done.status == 0, done.err
    folders = sorted((tmp_path / "outputs").iterdir())
    assert [folder.name for folder in folders] == ["2026-11-01_10-00-00", "2026-11-01_10-00-00_2"]
    for folder in folders:
        # A single run is a sweep of one: the same files.
        assert len(list((folder / "runs").iterdir())) == 1
        assert (folder / "sweep.json").exists()
        assert (folder / "report.html").exists()


PRESETS = {
    "colab_mnist": ("dataset.size=300", "dataset.holdout=100", "epochs=1", "num_workers=1"),
    "cuda_vs_cpu": ("dataset=fake", "dataset.size=32", "dataset.val_size=16", "epochs=1", "batch_size=16"),
    "digits_quick": ("dataset.size=60", "dataset.val_size=20", "epochs=1", "batch_size=20", "lr=0.01", "seed=0"),
    "gpu_crossover": ("dataset.size=40", "epochs=1", "model.depth=2"),
    "zero_to_gans": ("dataset.size=200", "epochs=1"),
}
"""Each preset with overrides that make it small. A new preset needs a line here."""


@pytest.mark.parametrize("preset", sorted(path.stem for path in (conf_folder() / "experiment").iterdir()))
def test_preset_runs(
    preset: str,
    command: Callable[..., Any],
    sweep: Callable[[str], Any],
    request: pytest.FixtureRequest,
) -> None:
    header = (conf_folder() / "experiment" / f"{preset}.yaml").read_text().splitlines()[:2]
    assert header == ["# @package _global_", f"# runmanager sweep experiment={preset}"]
    words = list(PRESETS[preset])
    if "dataset=fake" not in words and "mnist" in (conf_folder() / "experiment" / f"{preset}.yaml").read_text():
        words.append(f"data_root={request.getfixturevalue('mnist_root')}")
    done = command(f"experiment={preset}", *words, "name=small")
    assert done.status == 0, done.err
    devices = {each.settings["device"]: each.status for each in sweep("small").records}
    expected = {"auto": "finished"} if len(sweep("small").records) == 1 else {"cpu": "finished", "cuda": "skipped"}
    assert {name: str(status) for name, status in devices.items()} in (expected, {"auto": "finished"})


def test_axes_may_be_given_as_sweeper_params(command: Callable[..., Any], tiny: tuple[str, ...]) -> None:
    done = command("-m", *tiny, "--dry-run", "+hydra.sweeper.params.lr='0.1,0.2'")
    assert (done.status, "2 cells: 2 start" in done.out) == (0, True), done.err


def test_each_varying_setting_of_a_preset_is_an_axis(command: Callable[..., Any]) -> None:
    done = command("experiment=cuda_vs_cpu", "--dry-run")
    assert "12 cells: 6 skip, 6 start" in done.out
    assert "batch_size=20000,num_workers=1,device=cuda" in done.out


def test_a_preset_with_single_values_is_a_single_run(
    command: Callable[..., Any], sweep: Callable[[str], Any], tmp_path: Path
) -> None:
    words = ("experiment=digits_quick", *PRESETS["digits_quick"], "device=cuda", "name=single")
    done = command(*words)
    assert done.status == 2
    (line,) = done.faults
    assert line.startswith("error: Device 'cuda' was asked for but PyTorch sees no CUDA device")
    assert not (tmp_path / "outputs").exists()
    assert command("-m", *words).status == 0
    assert [each.reason for each in sweep("single").records] == ["device_unavailable"]


def test_runs_side_by_side(
    command: Callable[..., Any], sweep: Callable[[str], Any], own_module: Path, tiny: tuple[str, ...]
) -> None:
    own = ("model=custom", "model._target_=own.Net", "+model.way=meet", "+model.partners=2")
    done = command("-m", *tiny, *own, "lr=0.1,0.2", "hydra.launcher.workers=2", "name=two")
    assert done.status == 0, done.out
    assert len(list((own_module.parent / "met").iterdir())) == 2
    assert {row["contended"] for row in sweep("two").rows()} == {"True"}


@pytest.fixture(scope="module")
def by_local(tmp_path_factory: pytest.TempPathFactory, tiny: tuple[str, ...], elsewhere: Callable[..., Any]) -> Any:
    """Two cells, run by the local launcher."""
    folder = tmp_path_factory.mktemp("local")
    return elsewhere(folder, "-m", *tiny, "lr=0.1", "device=cpu,cuda", "name=same")


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_other_launchers_give_the_same_results(
    launcher: str,
    by_local: Any,
    command: Callable[..., Any],
    start: Callable[..., Any],
    finish: Callable[..., Any],
    sweep: Callable[[str], Any],
    tiny: tuple[str, ...],
) -> None:
    if launcher == "joblib":
        try:
            importlib.metadata.distribution("hydra-joblib-launcher")
        except importlib.metadata.PackageNotFoundError:
            pytest.skip("hydra/launcher=joblib is wanted: hydra-joblib-launcher is not installed")
    words = ("-m", *tiny, "lr=0.1", "device=cpu,cuda", "name=same", f"hydra/launcher={launcher}")
    # basic runs the cells in the driver's process; joblib would import this process's main module, which is pytest.
    done = command(*words) if launcher == "basic" else finish(start(*words))
    assert done.status == 0, done.err
    assert sweep("same").states() == by_local.states()
    assert sweep("same").numbers() == by_local.numbers()
    for name in ("results.csv", "epochs.csv", "comparison.csv"):
        assert columns(sweep("same").paths.root / name) == columns(by_local.paths.root / name)
        assert len(sweep("same").rows(name)) == len(by_local.rows(name))
    both = [sorted(each.records, key=lambda record: record.name) for each in (sweep("same"), by_local)]
    for one, other in zip(*both, strict=True):  # a launcher may start them in any order
        assert flatten(one.config) == flatten(other.config)
        assert one.epochs_planned == other.epochs_planned
    files = {each.name for each in sweep("same").paths.root.iterdir()}
    assert files == {each.name for each in by_local.paths.root.iterdir()}


def command_for_the_skipped(report: Path) -> list[str]:
    """The arguments of the command that a report gives for runs that lacked their device."""
    text = re.sub("</?span>", "", report.read_text())
    found = re.search(r"skipped because the host has no cuda: .* <code>runmanager sweep (.*?)</code>", text)
    assert found is not None
    return ["-m", *shlex.split(html.unescape(found[1]))]


def test_the_next_step_of_the_report_runs_exactly_what_is_missing(
    command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    words = [word for word in tiny if not word.startswith("device=")]
    assert command("-m", *words, "lr=0.1,0.2", "device=cpu,cuda", "name=grid").status == 0
    assert command("-m", *words, "lr=0.1,0.3", "device=cpu", "name=grid").status == 0  # the last one, and a part
    said = json.loads(sweep("grid").paths.record.read_text())
    assert [each[-3:] for each in said["commands"]] == [
        ["lr=0.1,0.2", "device=cpu,cuda", "name=grid"],
        ["lr=0.1,0.3", "device=cpu", "name=grid"],
    ]
    assert said["command"] == said["commands"][-1]
    plan = command(*command_for_the_skipped(sweep("grid").paths.report), "--dry-run").out
    to_do = {record.name for record in sweep("grid").records if record.status == "skipped"}
    states = dict(re.findall(r"^(\S+-[0-9a-f]{8}) +(start|start again|resume|keep|skip)\b", plan, re.M))
    assert {name for name, action in states.items() if action != "keep"} == to_do, plan
    assert len(states) == 4 and len(to_do) == 2


def test_an_unnamed_sweep_can_be_completed_by_the_command_of_its_report(
    command: Callable[..., Any], tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    words = [word for word in tiny if not word.startswith("device=")]
    assert command("-m", *words, "lr=0.1", "device=cpu,cuda").status == 0
    (root,) = (tmp_path / "outputs").iterdir()
    plan = command(*command_for_the_skipped(root / "report.html"), "--dry-run").out
    assert f"Where: outputs/{root.name}/runs" in plan
    assert "2 cells: " in plan and "1 keep" in plan
