"""`runmanager adopt`: results of Hydra, TensorBoard and Lightning become a sweep that all commands read."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

from runmanager import RunManager, Sweep
from runmanager.errors import UsageError
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.results.program_files.folder_metrics import metrics_by_step
from runmanager.tracking.tensorboard.logdir import SweepLogdir

from ..conftest import rows_of

HYDRA_APP = """
import hydra
from hydra.core.hydra_config import HydraConfig
from torch.utils.tensorboard import SummaryWriter

@hydra.main(version_base="1.3", config_path=".", config_name="config")
def main(cfg):
    if cfg.model.width > 64:
        raise MemoryError("before anything was logged")
    with SummaryWriter(HydraConfig.get().runtime.output_dir + "/board") as writer:
        for step in range(cfg.steps):
            writer.add_scalar("val/loss", cfg.lr / (step + 1) + 0.001 * cfg.seed, step)
            writer.add_scalar("zeal", cfg.lr, step)

main()
"""
HYDRA_CONFIG = """
lr: 0.1
seed: 1
steps: 4
model: {width: 8, name: mlp}
out: ${hydra:runtime.output_dir}
double: ${model.width}
"""


def run_hydra(folder: Path, *words: str) -> None:
    """Run the application under Hydra's own launcher, which continues after a job that failed."""
    command = [sys.executable, folder / "app.py", *words]
    subprocess.run(command, cwd=folder, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)


@pytest.fixture(scope="module")
def hydra_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a multirun of seven jobs, one of which failed, in `multirun/first`, and two single runs."""
    folder = tmp_path_factory.mktemp("hydra")
    (folder / "app.py").write_text(HYDRA_APP)
    (folder / "config.yaml").write_text(HYDRA_CONFIG)
    run_hydra(folder, "-m", "hydra.sweep.dir=multirun/first", "lr=0.1,0.3", "seed=1,2,3")
    run_hydra(folder, "-m", "hydra.sweep.dir=multirun/first", "hydra.sweep.subdir=wide", "model.width=128")
    run_hydra(folder, "hydra.run.dir=outputs/2026-11-22/21-36-42")
    run_hydra(folder, "hydra.run.dir=outputs/2026-11-22/21-36-50", "lr=0.2", "steps=2")
    return folder


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def contents_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def results_of(name: str) -> list[dict[str, str]]:
    return rows_of(Path("outputs", name, "results.csv").read_text())


def compared_by_lr(command: Callable, *words: str) -> list[dict[str, str]]:
    rows = rows_of(command("compare", "first", "--axis", "lr", *words, "--format", "csv").out)
    return [row for row in rows if row["model.width"] == "8"]


def words_of(text: str) -> str:
    """The text in one line, however the terminal wrapped it."""
    return " ".join(text.split())


def write_scalars(folder: Path, **values: float) -> None:
    with SummaryWriter(folder) as writer:
        for tag, value in values.items():
            writer.add_scalar(tag, value, 1)


def test_a_multirun_becomes_a_sweep_that_every_command_reads(
    command: Callable, hydra_results: Path, tmp_path: Path
) -> None:
    original = contents_of(hydra_results / "multirun")
    said = command("adopt", str(hydra_results / "multirun/first"))
    assert "outputs/first: 7 runs adopted (6 finished, 1 crashed)" in said.out
    assert contents_of(hydra_results / "multirun") == original

    rows = results_of("first")
    finished = [row for row in rows if row["status"] == "finished"]
    assert {(row["lr"], row["seed"], row["model.width"]) for row in finished} == {
        (lr, seed, "8") for lr in ("0.1", "0.3") for seed in "123"
    }
    for row in finished:
        assert float(row["val_loss"]) == pytest.approx(float(row["lr"]) / 4 + 0.001 * int(row["seed"]), rel=1e-6)
    # What was not measured is empty, the device included.
    for name in ("device", "epoch_seconds", "run_seconds", "samples_per_second", "contended", "device_name"):
        assert {row[name] for row in rows} == {""}
    (failed,) = [row for row in rows if row["status"] != "finished"]
    assert (failed["status"], failed["reason"], failed["model.width"]) == ("crashed", "vanished", "128")
    assert "adopted" in command("table", "first").out

    (row,) = compared_by_lr(command, "--metric", "val_loss")
    assert (row["verdict"], row["baseline_runs"]) == ("worse", "3")
    (row,) = compared_by_lr(command)
    assert row["verdict"] == "not measured"
    assert row["reason"].startswith("adopted runs were not timed: lr=0.1, lr=0.3")
    best = json.loads(command("best", "first", "--metric", "zeal", "--better", "max", "--format", "json").out)
    assert best["best"]["settings"]["lr"] == 0.3

    name = finished[0]["run"]
    shown = command("show", f"first/{name}").out
    assert str(hydra_results / "multirun/first") in shown
    assert "${hydra:runtime.output_dir}" in shown
    record = json.loads(SweepPaths(Path("outputs/first")).run(name).record.read_text())
    assert record["origins"] == {"val_loss": "event file", "zeal": "event file"}
    assert record["adopted"].startswith(str(hydra_results))
    assert len(Sweep("outputs/first").runs) == 7
    command("report", "first")
    page = Path("outputs/first/report.html").read_text()
    assert "adopted" in page and "Learning curves: validation loss by step" in page, "from the original files"

    refused = command("reproduce", f"first/{name}")
    assert (refused.status, len(refused.err.splitlines())) == (2, 1)
    assert "adopted" in refused.err


def test_the_original_event_files_are_shown_by_tensorboard(
    command: Callable, hydra_results: Path, tmp_path: Path
) -> None:
    command("adopt", str(hydra_results / "multirun/first"), "--name", "seen")
    (tmp_path / "logdir").mkdir()
    logdir = SweepLogdir(SweepPaths(Path("outputs/seen")), tmp_path / "logdir")
    logdir.refresh()
    runs = {path.name: path for path in logdir.root.iterdir()}
    assert set(runs) == {f"lr={lr},seed={seed},width=8" for lr in (0.1, 0.3) for seed in (1, 2, 3)}
    files = [path.resolve() for path in runs["lr=0.3,seed=2,width=8"].iterdir() if path.is_symlink()]
    assert [path.parent.name for path in files] == ["board"]
    made = {path: path.stat().st_ctime_ns for path in runs.values()}
    logdir.refresh()
    assert {path: path.stat().st_ctime_ns for path in runs.values()} == made


def test_adopting_again_adds_what_is_new_and_changes_nothing_else(
    command: Callable, hydra_results: Path, tmp_path: Path
) -> None:
    folder = hydra_results / "outputs/2026-11-22"
    command("adopt", str(folder / "21-36-42"), "--name", "days", "--output-root", "kept")
    first = contents_of(tmp_path / "kept/days/runs")
    assert len(rows_of(Path("kept/days/results.csv").read_text())) == 1
    command("adopt", str(folder), "--name", "days", "--output-root", "kept")
    both = contents_of(tmp_path / "kept/days/runs")
    assert {name: both[name] for name in first if name.endswith("epochs.jsonl")} == {
        name: first[name] for name in first if name.endswith("epochs.jsonl")
    }
    rows = rows_of(Path("kept/days/results.csv").read_text())
    assert [row["lr"] for row in rows] == ["0.1", "0.2"]
    # The second logged fewer steps: it may have been stopped.
    assert "its metrics end at step 1, those of other runs at up to 3" in words_of(command("table", "kept/days").out)
    command("adopt", str(folder), "--name", "days", "--output-root", "kept")
    assert contents_of(tmp_path / "kept/days/runs") == both


def test_default_name_of_a_dated_folder_has_its_date(command: Callable, hydra_results: Path) -> None:
    command("adopt", str(hydra_results / "outputs/2026-11-22/21-36-42"))
    assert len(results_of("2026-11-22_21-36-42")) == 1


def test_epochs_of_lightning_are_epochs(command: Callable, tmp_path: Path) -> None:
    for version, lr in enumerate((0.1, 0.2)):
        folder = tmp_path / f"lightning_logs/version_{version}"
        folder.mkdir(parents=True)
        (folder / "hparams.yaml").write_text(f"lr: {lr}\nname: net\n")
        lines = ["epoch,step,train_loss,val_acc", "0,3,0.9,", "0,7,,0.5", "1,11,0.8,", "1,15,,0.75", "2,23,,0.625", ""]
        (folder / "metrics.csv").write_text("\n".join(lines))
    command("adopt", "lightning_logs", "--name", "lit")
    assert [(row["lr"], row["epochs"], row["val_accuracy"], row["loss"]) for row in results_of("lit")] == [
        ("0.1", "3", "0.625", "0.8"),  # the training loss of epoch 2, the last that logged it
        ("0.2", "3", "0.625", "0.8"),
    ]
    epochs = rows_of(Path("outputs/lit/epochs.csv").read_text())
    assert [(row["epoch"], row["val_accuracy"], row["loss"]) for row in epochs[:3]] == [
        *(("1", "0.5", "0.9"), ("2", "0.75", "0.8"), ("3", "0.625", "")),
    ]
    best = json.loads(command("best", "lit", "--at", "best", "--format", "json").out)
    assert (best["best"]["mean"], best["best"]["runs"][0]["epoch"]) == (0.75, 2)


def test_settings_of_event_files_are_their_hyperparameters_or_their_folders_name(command: Callable) -> None:
    with SummaryWriter("tree/one") as writer:
        writer.add_scalar("f1", 0.5, 1)
        writer.add_hparams({"lr": 0.5, "batch": 8}, {"hparam/f1": 0.5})  # in a folder of its own below this one
    write_scalars(Path("tree/lr=1e-3,batch=32/seed=2"), f1=0.25)
    write_scalars(Path("tree/plain"), f1=0.75, fid=3.0)
    command("adopt", "tree", "--metric", "f1, hp*,*/f1")
    rows = {row["f1"]: row for row in results_of("tree")}
    assert {(row["lr"], row["batch"], row["seed"], row["folder"]) for row in rows.values()} == {
        *(("0.5", "8", "", ""), ("0.001", "32", "2", ""), ("", "", "", "plain")),
    }
    assert all("fid" not in row for row in rows.values())


def test_runs_of_equal_settings_are_one_cell_and_the_others_are_named(command: Callable) -> None:
    for number, value in enumerate((0.25, 0.5)):
        write_scalars(Path(f"tree/{number}"), f1=value)
        (Path(f"tree/{number}") / "hparams.yaml").write_text("lr: 0.1\n")
    said = command("adopt", "tree")
    assert [row["f1"] for row in results_of("tree")] == ["0.5"]
    assert "tree/0 has the settings of" in said.err


def test_damaged_parts_are_named_and_the_rest_is_adopted(command: Callable, tmp_path: Path) -> None:
    for number in range(4):
        write_scalars(tmp_path / f"runs/lr={number}", f1=0.5)  # the folder of SummaryWriter
    (tmp_path / "tree").mkdir()
    (tmp_path / "runs/lr=0/events.out.tfevents.9").write_bytes(os.urandom(300))
    os.mkfifo(tmp_path / "runs/lr=1/events.out.tfevents.9")
    (tmp_path / "runs/lr=2/loop").symlink_to(tmp_path / "runs")
    (tmp_path / "runs/lr=3/hparams.yaml").write_text("a: &a [1,1]\n" + "".join(f"a{i}: [*a,*a]\n" for i in range(9)))
    (tmp_path / "tree/broken/.hydra").mkdir(parents=True)
    (tmp_path / "tree/broken/.hydra/config.yaml").write_text("lr: [\n")
    (tmp_path / os.fsdecode(b"tree/x=\xff")).mkdir()
    (tmp_path / os.fsdecode(b"tree/x=\xff/metrics.csv")).write_text("step,f1\n1,0.5\n")
    said = command("adopt", ".", "--name", "tree")
    assert "5 runs adopted (5 finished)" in said.out
    for words in ("lr=0/events.out.tfevents.9 is damaged", "lr=1/events.out.tfevents.9 is not a regular file"):
        assert words in said.err
    assert "broken/.hydra/config.yaml is damaged" in said.err


def test_what_cannot_be_adopted_is_refused_in_one_line(command: Callable, tmp_path: Path) -> None:
    write_scalars(tmp_path / "tree/lr=1", f1=0.5)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.zeros(8, dtype=torch.int64)), batch_size=4)
    with RunManager("outputs/own").run({"lr": 0.1}, torch.nn.Linear(4, 2), loader):
        pass
    for words, what in (
        (["missing"], "nothing there"),
        (["file"], "a file"),
        (["empty"], "got none in"),
        (["outputs/own"], "runmanager table outputs/own"),
        (["outputs/own/runs"], "is the run of a sweep already"),
        (["tree", "--name", "own"], "with its own run"),
        (["tree", "--name", "a/b"], "must be the name of one folder"),
        (["tree", "--output-root", "."], "which exists"),
        (["tree", "--metric", "f2"], "did you mean 'f1'?"),
    ):
        refused = command("adopt", *words)
        assert (refused.status, len(refused.err.splitlines())) == (2, 1), refused.err
        assert what in refused.err
    assert not (tmp_path / "outputs/tree").exists()
    command("adopt", "tree")
    again = RunManager("outputs/tree", overwrite=True)
    with pytest.raises(UsageError, match="adopted from"), again.run({"lr": 1}, torch.nn.Linear(4, 2), loader):
        pass


def test_a_metric_that_gets_another_name_is_said_once_and_is_what_is_compared(command: Callable) -> None:
    for seed in (0, 1, 2):
        for lr, accuracy in ((0.1, 0.5 + 0.02 * seed), (0.01, 0.9 - 0.01 * seed)):
            run = Path("theirs", f"lr={lr},seed={seed}")
            run.mkdir(parents=True)
            (run / "metrics.csv").write_text(f"epoch,val/acc,mine\n0,0.1,1\n1,{accuracy},2\n")
    said = command("adopt", "theirs").out
    assert said.splitlines()[0] == "val/acc is named val_accuracy here, as that is what it means."
    assert said.count("val/acc") == 1 and "mine" not in said
    text = " ".join(command("compare", "theirs").out.split())
    assert "val_accuracy" in text and "better" in text and "were not timed" not in text
    asked = " ".join(command("compare", "theirs", "--axis", "lr", "--metric", "samples_per_second").out.split())
    assert "adopted runs were not timed" in asked and "is compared with --metric: val_accuracy, mine" in asked


def test_a_run_that_was_resumed_has_the_values_of_its_last_process(command: Callable, tmp_path: Path) -> None:
    """The first process died at step 19, the second one resumed at step 10 and ended at 14."""
    for purge_step, steps, loss in ((None, range(20), 0.125), (None, range(10, 15), 0.5)):
        with SummaryWriter("tree/lr=1", purge_step=purge_step) as writer:
            for step in steps:
                writer.add_scalar("val_loss", loss, step)
    table = command("table", "tree", "--events", "--format", "csv")
    assert [(row["val_loss"], row["steps"]) for row in rows_of(table.out)] == [("0.5", "14")]
    shown = words_of(command("table", "tree", "--events").out)
    assert "Not counted in lr=1: 10 values of val_loss from steps that a later process wrote again" in shown
    assert "unless the writer was given `purge_step`" in shown
    command("adopt", "tree")
    assert [row["val_loss"] for row in results_of("tree")] == ["0.5"]
    best = json.loads(command("best", "tree", "--format", "json").out)
    assert (best["metric"], best["best"]["mean"]) == ("val_loss", 0.5)
    (curve,) = metrics_by_step(RunPaths(tmp_path / "tree/lr=1"), {"val_loss": "event file"}).values()
    assert curve == {step: 0.125 if step < 10 else 0.5 for step in range(15)}


def test_a_loop_that_calls_add_hparams_has_a_run_for_each_call(command: Callable, tmp_path: Path) -> None:
    with SummaryWriter("logs/exp") as writer:
        writer.add_scalar("shared", 1.0, 0)
        for lr in (0.5, 0.25, 0.125):
            writer.add_hparams({"lr": lr, "batch": int(8 * lr)}, {"hparam/score": lr})
    (tmp_path / "logs/exp/pictures").mkdir()
    write_scalars(tmp_path / "logs/exp/pictures", fid=1.0)
    said = command("adopt", "logs")
    assert {(row["lr"], row["batch"], row["hparam/score"]) for row in results_of("logs")} == {
        *(("0.5", "4", "0.5"), ("0.25", "2", "0.25"), ("0.125", "1", "0.125"))
    }
    assert "exp holds several runs; its own values belong to none, and are left out: shared" in words_of(said.err)
    assert "exp/pictures has no hyperparameters" in words_of(said.err)
    best = json.loads(command("best", "logs", "--metric", "hparam/score", "--format", "json").out)
    assert best["best"]["settings"]["lr"] == 0.5


def test_hyperparameters_that_were_written_again_are_those_of_one_run(command: Callable) -> None:
    for score in (0.75, 0.5):  # attempts of a training
        with SummaryWriter("logs/exp") as writer:
            writer.add_scalar("val_loss", score, 1)
            writer.add_hparams({"lr": 0.5}, {"hparam/score": score, "val_loss": 9.0}, global_step=int(score * 100))
    command("adopt", "logs")
    assert [(row["hparam/score"], row["val_loss"], row["add_hparams/val_loss"]) for row in results_of("logs")] == [
        ("0.5", "0.5", "9.0")
    ]


@pytest.mark.parametrize(
    ("first", "second"), [("Loss/train", "Loss/test"), ("accTrain", "valid_err"), ("acc.train", "f1")]
)
def test_the_overfitted_cell_is_not_the_best(command: Callable, first: str, second: str) -> None:
    good, bad = (0.25, 0.5) if "oss" in second or "err" in second else (0.5, 0.25)
    for lr, of_training, value in ((0.5, bad if "acc" in first else good, good), (0.25, 0.75 - good, bad)):
        with SummaryWriter(f"tree/lr={lr}") as writer:
            writer.add_scalar(first, of_training, 1)
            writer.add_scalar(second, value, 1)
    command("adopt", "tree")
    best = json.loads(command("best", "tree", "--format", "json").out)
    assert (best["metric"], best["best"]["settings"]["lr"]) == (second, 0.5)
    (listed,) = json.loads(command("ls", "--format", "json").out)
    assert (listed["metric"], listed["best"]) == (second, good)
    text = words_of(command("table", "tree").out)
    assert text.index("0.5 finished") < text.index("0.25 finished")
