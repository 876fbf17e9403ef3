"""The bridge to Transformers: real trainings of a tiny model, against what the Trainer says of itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from runmanager.integrations.transformers import RunManagerCallback, chosen_arguments
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.tracking.program.current_run import end_current_run

NUM_SAMPLES, BATCH = 22, 4


@pytest.fixture(autouse=True)
def no_open_run() -> Iterator[None]:
    yield
    end_current_run()


class Samples(Dataset[Any]):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(NUM_SAMPLES, 5, generator=generator)
        self.labels = torch.randint(0, 3, (NUM_SAMPLES,), generator=generator)

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"inputs": self.inputs[index], "labels": self.labels[index]}


class Model(torch.nn.Module):
    def __init__(self, fails_at: int = -1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Linear(5, 3)
        self.fails_at = fails_at
        self.losses: list[float] = []

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training and len(self.losses) == self.fails_at:
            self.fails_at = -1
            raise ValueError("bad batch")
        scores = self.net(inputs)
        loss = F.cross_entropy(scores, labels)
        if self.training:
            self.losses.append(float(loss.detach()))
        return {"loss": loss, "logits": scores}


def make_trainer(folder: Path, callback: RunManagerCallback, model: Model | None = None, **options: Any) -> Trainer:
    defaults = {
        "output_dir": str(folder / "checkpoints"),
        "per_device_train_batch_size": BATCH,
        "num_train_epochs": 2,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "eval_strategy": "epoch",
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
    }
    arguments = TrainingArguments(**defaults | options)
    return Trainer(
        model or Model(),
        arguments,
        train_dataset=Samples(),
        eval_dataset=Samples(),
        callbacks=[callback],
        compute_metrics=lambda all_: {"accuracy": float((all_.predictions.argmax(1) == all_.label_ids).mean())},
    )


def stored(root: Path) -> StoredRun:
    (run,) = read_sweep(SweepPaths(root)).runs
    return run


def test_callback_records_epochs_values_settings_and_tests(tmp_path: Path) -> None:
    callback, model = RunManagerCallback(tmp_path / "sweep"), Model()
    trainer = make_trainer(tmp_path, callback, model, learning_rate=0.1)
    result = trainer.train()
    tested = trainer.predict(Samples())
    callback.run.end()

    run = stored(tmp_path / "sweep")
    record = run.record
    assert (record.status, record.epochs_planned, record.num_parameters) == ("finished", 2, 18)
    settings = {"per_device_train_batch_size": BATCH, "num_train_epochs": 2, "learning_rate": 0.1}
    assert settings.items() <= record.config.items()
    assert not {"output_dir", "report_to", "save_strategy", "disable_tqdm", "seed"} & record.config.keys()
    assert [epoch.samples for epoch in run.epochs] == [NUM_SAMPLES] * 2
    steps = len(model.losses) // 2
    means = [sum(model.losses[:steps]) / steps, sum(model.losses[steps:]) / steps]
    assert [epoch.loss for epoch in run.epochs] == pytest.approx(means, rel=1e-3), "the mean over the steps"
    with torch.no_grad():
        scores = model.net(Samples().inputs)
    last = run.epochs[-1]
    assert last.val_loss == pytest.approx(float(F.cross_entropy(scores, Samples().labels)), rel=1e-3)
    assert last.val_accuracy == pytest.approx(float((scores.argmax(1) == Samples().labels).float().mean()))
    assert set(last.metrics) == {"grad_norm", "learning_rate"}
    expected = {"train_loss": result.training_loss, "test_loss": tested.metrics["test_loss"]}
    assert {name: record.summary[name] for name in expected} == pytest.approx(expected, rel=1e-3)
    assert last.transfer_seconds is None and any("transfers" in note for note in record.notes)
    assert all(getattr(last, f"{part}_seconds") > 0 for part in ("data", "compute", "eval", "tracking"))


def test_accumulation_evaluations_within_the_epoch_and_a_limit_of_steps(tmp_path: Path) -> None:
    callback, model = RunManagerCallback(tmp_path / "sweep"), Model()
    options = {"gradient_accumulation_steps": 2, "max_steps": 4, "eval_strategy": "steps", "eval_steps": 1}
    make_trainer(tmp_path, callback, model, logging_steps=2, **options).train()
    callback.run.end()
    run = stored(tmp_path / "sweep")
    assert [epoch.samples for epoch in run.epochs] == [NUM_SAMPLES, 2 * BATCH], "the second is cut by `max_steps`"
    assert (run.record.status, run.record.epochs_planned) == ("finished", 2)
    first = [sum(model.losses[index : index + 2]) / 2 for index in (0, 2, 4)]
    assert run.epochs[0].loss == pytest.approx(sum(first) / 3, rel=1e-3)
    with torch.no_grad():
        final = float(F.cross_entropy(model.net(Samples().inputs), Samples().labels))
    assert run.epochs[-1].val_loss == pytest.approx(final, rel=1e-3)


def test_training_that_is_resumed_continues_the_numbers_of_epochs(tmp_path: Path) -> None:
    first = RunManagerCallback(tmp_path / "first")
    make_trainer(tmp_path, first, num_train_epochs=3, max_steps=12, save_strategy="epoch").train()
    second, model = RunManagerCallback(tmp_path / "second"), Model()
    trainer = make_trainer(tmp_path, second, model, num_train_epochs=3)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoints" / "checkpoint-12"))
    second.run.end()
    assert [epoch.epoch for epoch in stored(tmp_path / "first").epochs] == [1, 2], "ended as the next began"
    later = stored(tmp_path / "second")
    assert [epoch.epoch for epoch in later.epochs] == [3]
    assert later.epochs[0].loss == pytest.approx(sum(model.losses) / len(model.losses), rel=1e-3)
    assert (later.record.status, later.record.reason) == ("finished", None)


def test_training_that_is_repeated_after_an_error_records_whole_epochs_only(tmp_path: Path) -> None:
    callback, model = RunManagerCallback(tmp_path / "sweep"), Model(fails_at=8)
    trainer = make_trainer(tmp_path, callback, model)
    with pytest.raises(ValueError, match="bad batch"):
        trainer.train()
    trainer.train()
    callback.run.end()
    run = stored(tmp_path / "sweep")
    assert [(epoch.epoch, epoch.samples) for epoch in run.epochs] == [(number, NUM_SAMPLES) for number in (1, 2, 3)]
    assert run.record.status == "finished"


def test_training_that_is_left_within_an_epoch_has_failed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bad batch"):
        make_trainer(tmp_path, RunManagerCallback(tmp_path / "first"), Model(fails_at=8)).train()
    make_trainer(tmp_path, RunManagerCallback(tmp_path / "second"), num_train_epochs=1).train()
    left = stored(tmp_path / "first")
    assert (left.record.status, [epoch.epoch for epoch in left.epochs]) == ("failed", [1])


def test_finished_run_is_kept(tmp_path: Path) -> None:
    for most in (12, 1):  # a Trainer looks at its orders after a step
        callback, model = RunManagerCallback(tmp_path / "sweep"), Model()
        make_trainer(tmp_path, callback, model).train()
        callback.run.end()
        assert len(model.losses) == most
    assert len(stored(tmp_path / "sweep").epochs) == 2


def test_arguments_as_by_default_are_no_settings(tmp_path: Path) -> None:
    default = TrainingArguments(output_dir=str(tmp_path), run_name="mine", logging_steps=3, hub_token="secret")
    assert chosen_arguments(default) == {}
    chosen = TrainingArguments(output_dir=str(tmp_path), warmup_steps=3, lr_scheduler_type="cosine")
    assert chosen_arguments(chosen) == {"warmup_steps": 3, "lr_scheduler_type": "cosine"}
