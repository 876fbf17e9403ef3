"""Checkpoints: the complete training state is saved and restored, and files load only weights."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from runmanager.errors import RecordError, UsageError
from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.checkpoint.checkpoint_file import read_state
from runmanager.tracking.options import Progress
from runmanager.training.job import job_state
from runmanager.training.options.groups import AdamOptions, CosineOptions, OneCycleOptions, SgdOptions
from runmanager.training.step.optimizers import build_optimizer, build_scheduler

PROGRESS = Progress(EpochRecord(epoch=3, loss=0.5, val_loss=float("inf"), samples=40), events_length=1234, num_steps=12)


class Trained:
    """A small training with all stateful components."""

    def __init__(self, *, optimizer=None, scheduler=None, seed=0, every=1, keep_best=None):
        torch.manual_seed(seed)
        self.network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
        self.optimizer = build_optimizer(optimizer or AdamOptions(), self.network.parameters(), lr=0.1)
        self.scheduler = build_scheduler(scheduler or CosineOptions(), self.optimizer, num_epochs=10, steps_per_epoch=2)
        self.state = job_state(
            self.network, self.optimizer, self.scheduler, every=every, num_epochs=10, keep_best=keep_best
        )

    def step(self):
        noise = torch.rand(5, 4) + random.random() + float(np.random.rand())
        self.optimizer.zero_grad()
        self.network(noise).square().mean().backward()
        self.optimizer.step()
        self.scheduler.step()
        return self

    def numbers(self):
        values = [self.scheduler.lr, *(float(value.sum()) for value in self.network.state_dict().values())]
        return values + [float(each["exp_avg"].sum()) for each in self.optimizer.state.values() if "exp_avg" in each]


@pytest.mark.parametrize("optimizer", [AdamOptions(), SgdOptions(momentum=0.9)])
@pytest.mark.parametrize("scheduler", [CosineOptions(), OneCycleOptions()])
def test_resumed_training_equals_uninterrupted_training(tmp_path, optimizer, scheduler):
    path = tmp_path / "checkpoint.pt"
    first = Trained(optimizer=optimizer, scheduler=scheduler).step().step()
    first.state.save(path, PROGRESS)
    expected = [first.step().numbers() for _ in range(3)]
    other = Trained(optimizer=optimizer, scheduler=scheduler, seed=99).step()
    assert other.state.load(path) == PROGRESS
    assert [other.step().numbers() for _ in range(3)] == expected


def test_the_file_loads_with_weights_only(tmp_path):
    path = tmp_path / "checkpoint.pt"
    Trained().step().state.save(path, PROGRESS)
    state = torch.load(path, weights_only=True)
    assert set(state) == {"version", "model", "optimizer", "scheduler", "random", "progress"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint.pt"], "no other file may be left"


def test_a_failed_save_keeps_the_previous_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    trained = Trained().step()
    trained.state.save(path, PROGRESS)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="no"):
        trained.step().state.save(path, PROGRESS)
    assert path.read_bytes() == before


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "words":
        path.write_bytes(b"not a checkpoint")
    elif how == "missing":
        path.unlink()
    else:
        torch.save({"a": Path}, path)  # refused by weights_only


@pytest.mark.parametrize("how", ["cut", "empty", "words", "missing", "foreign"])
def test_a_damaged_file_is_reported_by_name(tmp_path, how):
    path = tmp_path / "checkpoint.pt"
    trained = Trained().step()
    trained.state.save(path, PROGRESS)
    damage(path, how)
    with pytest.raises(RecordError, match=r"checkpoint\.pt is damaged \(\w+\); run it again\.$"):
        trained.state.load(path)


@pytest.mark.parametrize(("content", "got"), [({"version": 2}, "2"), ({}, "None"), ([1, 2], "None")])
def test_another_version_is_refused(tmp_path, content, got):
    path = tmp_path / "checkpoint.pt"
    torch.save(content, path)
    with pytest.raises(RecordError, match=rf"must be a checkpoint of version 1, got {got}; run it again\.$"):
        Trained().state.load(path)


@pytest.mark.parametrize(("every", "due"), [(1, list(range(1, 11))), (3, [3, 6, 9, 10]), (20, [10]), (0, [])], ids=str)
def test_when_a_checkpoint_is_due(every, due):
    state = Trained(every=every).state
    assert [epoch for epoch in range(11) if state.is_due(epoch)] == due


@pytest.mark.parametrize(("metric", "best"), [("val/f1", 2), ("val/mae", 1)])
def test_the_best_epoch_of_a_logged_metric_is_kept(tmp_path, metric, best):
    """Also across a resume; epochs without the metric are never the best."""
    values = [0.5, 0.9, None, 0.6]
    records = [EpochRecord(epoch=number, metrics={metric: value}) for number, value in enumerate(values, start=1)]
    records.append(EpochRecord(epoch=5, loss=0.0))
    for record in records:
        trained = Trained(every=20, keep_best=metric)
        if record.epoch > 1:
            trained.state.load(tmp_path / "checkpoint.pt")
        trained.state.observe(record)
        trained.state.save(tmp_path / "checkpoint.pt", Progress(record, 0, 0))
        assert trained.state.is_due(record.epoch) is (record.epoch <= best)
    kept = read_state(tmp_path / "best.pt")["best"]
    assert (kept["metric"], kept["record"]["epoch"], kept["record"]["metrics"]) == (
        metric,
        best,
        {metric: kept["value"]},
    )


def test_keeping_the_best_by_a_metric_of_unknown_direction_asks_for_it():
    with pytest.raises(UsageError, match=r"got 'quux', .*runmanager\.define_metric\('quux', better=…\)"):
        Trained(keep_best="quux")
