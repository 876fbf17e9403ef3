"""Metrics that a program left in files are found once each, under the names of tables; damage is named."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

from runmanager import RunManager
from runmanager.records.files.paths import RunPaths
from runmanager.results.program_files.folder_metrics import FoundMetrics, found_metrics, read_metrics

LIGHTNING = """
import sys
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import DataLoader, TensorDataset

class Module(LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss, on_epoch=True, on_step=True)
        return loss

    def validation_step(self, batch, index):
        scores = self.layer(batch[0])
        self.log("val_loss", torch.nn.functional.cross_entropy(scores, batch[1]))
        self.log("val_acc", (scores.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))), batch_size=8)
loggers = [CSVLogger(sys.argv[1]), TensorBoardLogger(sys.argv[1], name="board")]
options = dict(accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=4)
Trainer(max_epochs=3, logger=loggers, **options).fit(Module(), loader, loader)
"""


@pytest.fixture(scope="module")
def lightning_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder in which Lightning logged three epochs with its two loggers."""
    folder = tmp_path_factory.mktemp("lightning")
    script = folder / "train.py"
    script.write_text(LIGHTNING)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-W", "ignore", script, folder], check=True, capture_output=True, env=environment)
    return folder


def _write_events(folder: Path, **series: list[float]) -> None:
    with SummaryWriter(folder) as writer:
        for tag, values in series.items():
            for step, value in enumerate(values):
                writer.add_scalar(tag.replace("__", "/"), value, step)


def test_both_loggers_of_lightning_give_each_metric_once_by_its_column(lightning_run: Path) -> None:
    lines = (lightning_run / "lightning_logs/version_0/metrics.csv").read_text().splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    last = {name: float([row[name] for row in rows if row[name]][-1]) for name in rows[0]}
    found = found_metrics(RunPaths(lightning_run), apart_from=())
    assert found.values == {
        "train_loss_step": last["train_loss_step"],
        "loss": last["train_loss_epoch"],
        "val_accuracy": last["val_acc"],
        "val_loss": last["val_loss"],
    }
    assert set(found.origins.values()) == {"metrics.csv"}
    by_epoch = [
        {each.name: each.series.by_epoch for each in read_metrics(lightning_run / logger).metrics if each.is_column}
        for logger in ("lightning_logs", "board")
    ]
    assert set(by_epoch[0]) == {"loss", "val_loss", "val_accuracy"}
    assert list(by_epoch[0]["loss"]) == [0, 1, 2]
    assert by_epoch[1] == {name: pytest.approx(values, rel=1e-6) for name, values in by_epoch[0].items()}
    known = found_metrics(RunPaths(lightning_run), apart_from=("val_loss", "val_acc"))
    assert set(known.values) == {"train_loss_step", "loss"}


def test_event_files_at_any_depth_and_of_several_writers_count_once_each(tmp_path: Path) -> None:
    _write_events(tmp_path, val__loss=[0.5, 0.25], train__loss=[0.75, 0.5], fid=[9.0])
    _write_events(tmp_path / "deep/version_2", score=[0.5])
    _write_events(tmp_path / "deep/version_10", score=[0.75])  # continues version_2
    _write_events(tmp_path / "fold_1", fid=[8.0])
    _write_events(tmp_path / "attempts/1", old=[1.0])
    found = found_metrics(RunPaths(tmp_path), apart_from=())
    # Without epochs, `train/loss` may be the loss of one batch, which is not what `loss` means.
    assert found.values == {
        **{"val_loss": 0.25, "train/loss": 0.5, "fid": 9.0},
        **{"score": 0.75, "fold_1/fid": 8.0},
    }
    assert set(found.origins.values()) == {"event file"}


def test_hyperparameters_of_each_attempt_are_one_set_of_metrics(tmp_path: Path) -> None:
    for attempt in range(4):
        with SummaryWriter(tmp_path / "tb") as writer:
            writer.add_scalar("loss", attempt, attempt)
            writer.add_hparams({"lr": 0.1}, {"hparam/best": 0.5 + attempt, "loss": 7.0}, global_step=9 - attempt)
    assert found_metrics(RunPaths(tmp_path)).values == {"loss": 3.0, "hparam/best": 3.5, "tb/add_hparams/loss": 7.0}


def test_versions_of_lightning_replace_what_they_wrote_again(tmp_path: Path) -> None:
    for version, (epochs, loss) in enumerate(((range(8), 0.25), (range(4, 6), 0.5))):
        folder = tmp_path / f"logs/version_{version}"
        folder.mkdir(parents=True)
        lines = [f"{epoch},{10 * epoch + 9},{loss}" for epoch in epochs]
        (folder / "metrics.csv").write_text("\n".join(["epoch,step,val_loss", *lines, ""]))
        with SummaryWriter(folder) as writer:
            for epoch in epochs:
                writer.add_scalar("fid", loss, epoch)
    found = {each.name: each.series for each in read_metrics(tmp_path).metrics}
    assert found["val_loss"].by_epoch == {epoch: 0.25 if epoch < 4 else 0.5 for epoch in range(6)}
    assert found["val_loss"].points == {10 * epoch + 9: 0.25 if epoch < 4 else 0.5 for epoch in range(6)}
    assert found["fid"].points == {epoch: 0.25 if epoch < 4 else 0.5 for epoch in range(6)}


def test_event_file_that_this_package_wrote_is_not_read(tmp_path: Path) -> None:
    manager = RunManager(tmp_path / "mine")
    loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.zeros(8, dtype=torch.int64)), batch_size=4)
    with manager.run({"lr": 0.1}, torch.nn.Linear(4, 2), loader) as run:
        for epoch in run.epochs(1):
            for _ in epoch.batches(loader):
                pass
            epoch.log(f1=0.5)
    (folder,) = (tmp_path / "mine/runs").iterdir()
    assert list(folder.glob("events.out.tfevents.*"))
    _write_events(folder, val_loss=[0.5])
    assert found_metrics(RunPaths(folder), apart_from=()).values == {"val_loss": 0.5}


def test_percentages_are_not_accuracies(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("epoch,step,val/acc,val_f1\n0,1,93.5,0.5\n")
    assert found_metrics(RunPaths(tmp_path), apart_from=()).values == {"val/acc": 93.5, "val_f1": 0.5}


def test_torn_and_damaged_files_links_and_pipes_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/metrics.csv").write_text("epoch,step,val_loss,word\n0,1,0.5,x\n1,2,0.2")  # 0.25 when it was cut
    (tmp_path / "b").mkdir()
    (tmp_path / "b/metrics.csv").write_bytes(b"epoch,step,x\n\xff\xfe,\x00,1\n")
    (tmp_path / "events.out.tfevents.1").write_bytes(os.urandom(500))
    os.mkfifo(tmp_path / "events.out.tfevents.2")
    (tmp_path / "events.out.tfevents.3").symlink_to(tmp_path / "events.out.tfevents.3")
    (tmp_path / "a/loop").symlink_to(tmp_path)
    found = found_metrics(RunPaths(tmp_path), apart_from=())
    assert found.values == {"val_loss": 0.5}
    named = (
        "b/metrics.csv",
        "tfevents.1",
        "tfevents.2 is not a regular file",
        "tfevents.3 is a link, which is not followed",
    )
    assert len(found.notes) == 4
    assert all(any(str(tmp_path) in note and each in note for note in found.notes) for each in named)


def test_folder_without_metrics_has_none(tmp_path: Path) -> None:
    assert found_metrics(RunPaths(tmp_path), apart_from=()) == FoundMetrics({}, {}, ())


def test_two_sources_of_one_name_are_kept_apart_and_named(tmp_path: Path) -> None:
    _write_events(tmp_path, fold_1__fid=[1.0])
    _write_events(tmp_path / "fold_1", fid=[2.0], accuracy=[93.5])
    _write_events(tmp_path / "fold_2", fid=[3.0])
    (tmp_path / "metrics.csv").write_text("epoch,step,val_f1,train_acc\n0,1,0.5,0.75\n")
    _write_events(tmp_path, val_f1=[0.25])
    found = found_metrics(RunPaths(tmp_path))
    assert found.values == {
        **{"fold_1/fid": 1.0, "fold_1/fid (2)": 2.0, "fold_2/fid": 3.0},
        **{"accuracy": 93.5, "train_acc": 0.75, "val_f1": 0.5},
    }
    assert found.origins["val_f1"] == "metrics.csv"
    assert found.notes == (
        "the metrics.csv counts where event files beside it have other values: val_f1",
        "two metrics have one name: fold_1/fid of fold_1 is fold_1/fid (2)",
    )


def test_files_of_a_trainer_are_read_the_better_ones_first(tmp_path: Path) -> None:
    history = [{"loss": 0.9, "epoch": 0.5, "step": 5}, {"eval_loss": 0.7, "eval_f1": 0.5, "epoch": 1.0, "step": 10}]
    for number in (1, 2):
        state = tmp_path / f"checkpoint-{number * 10}/trainer_state.json"
        state.parent.mkdir()
        shown = history[:number] if number < 2 else [*history, {"loss": 0.4, "epoch": 2.0, "step": 20}]
        state.write_text(json.dumps({"global_step": number * 10, "log_history": shown}))
        os.utime(state, (number, number))
    (tmp_path / "all_results.json").write_text(
        '{"epoch": 2.0, "eval_f1": 0.6, "train_runtime": 3.5, "train_loss": 0.3, "predict": NaN}'
    )
    (tmp_path / "eval_results.json").write_text('{"epoch": 2.0, "eval_f1": 0.6, "eval_mcc": 0.25, "name": "x"}')
    _write_events(tmp_path / "runs", eval_mcc=[0.1], lr=[0.5])
    found = found_metrics(RunPaths(tmp_path))
    assert found.origins == {
        **dict.fromkeys(("loss", "val_loss", "eval_f1"), "trainer_state.json"),
        **dict.fromkeys(("train_loss", "predict"), "all_results.json"),
        "eval_mcc": "eval_results.json",
        **dict.fromkeys(("runs/eval_mcc", "lr"), "event file"),
    }
    assert math.isnan(found.values.pop("predict"))
    assert found.values == pytest.approx(
        {
            **{"loss": 0.4, "val_loss": 0.7, "eval_f1": 0.5, "train_loss": 0.3, "eval_mcc": 0.25},
            **{"runs/eval_mcc": 0.1, "lr": 0.5},
        }
    )
    assert found.notes == (
        "the trainer_state.json counts where the all_results.json beside it has other values: eval_f1",
    )


def test_damaged_files_of_a_trainer_are_named(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text('{"log_history": [{"loss": 1.0}')
    (tmp_path / "all_results.json").write_text("[1]")
    found = found_metrics(RunPaths(tmp_path))
    assert not found.values and len(found.notes) == 2 and all("is damaged" in note for note in found.notes)


def test_dated_folders_of_a_writer_continue_each_other(tmp_path: Path) -> None:
    for folder, values in {"Nov28_04-11-22_host_small": [3.0, 2.0], "Dec01_00-00-00_host_small": [1.0, 0.5]}.items():
        _write_events(tmp_path / "runs" / folder, fid=values)
    assert found_metrics(RunPaths(tmp_path)).values == {"fid": 0.5}
