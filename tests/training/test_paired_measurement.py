"""Paired measurement of the built-in job: turns with every loader, and only after a successful training."""

import pytest

from runmanager.app.run_cell import train_cell
from runmanager.errors import UsageError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.attempts import session_of_epoch, sessions_of
from runmanager.records.run.run_record import Grant
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.reader import read_run
from runmanager.tracking.options import EarlyStopOptions
from runmanager.tracking.sinks import LogSink
from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import (
    LogisticOptions,
    OneCycleOptions,
    PairedOptions,
    ResidentOptions,
    SgdOptions,
)

from ..job_options import job_options


class Taker:
    """Grants `num_turns` measured turns, none of them warm-up."""

    session = "a1"
    again = False
    family = None

    def __init__(self, num_turns=4):
        self.left = num_turns
        self.num_training = 0

    def ask(self, *, is_measured, samples=0, seconds=0.0, is_cancelled):
        if not is_measured:
            self.num_training += 1
            return Grant()
        self.left -= 1
        return None if self.left < 0 or is_cancelled() else Grant(1, 1)


def train(folder, taker, **changes):
    fields = {
        "epochs": 2,
        "dataset": FakeOptions(size=72, val_size=16),
        "model": LogisticOptions(),
        "measure": PairedOptions(),
    }
    options = job_options(**(fields | changes))
    paths = RunPaths(folder / "runs" / "one")
    train_cell(paths, options, {}, sinks=[LogSink()], turns=taker)
    return read_run(paths)


def test_blocks_continue_across_epochs_and_count_their_samples(tmp_path):
    # Five steps in an epoch, the last with 8 of 16 samples; each turn begins with one step that does not count.
    run = train(tmp_path, Taker(), loader=ResidentOptions(), measure=PairedOptions(block_steps=3))
    assert [(turn.steps, turn.samples) for turn in run.turns] == [(3, 48), (3, 48), (3, 40), (3, 40)]
    assert [epoch.epoch for epoch in run.epochs] == [1, 2]


def test_with_workers_a_turn_is_an_epoch(tmp_path):
    taker = Taker(2)
    run = train(tmp_path, taker, num_workers=1)
    assert [(turn.steps, turn.samples) for turn in run.turns] == [(5, 72)] * 2
    assert taker.num_training == 2


def test_a_scheduler_makes_no_steps_during_the_measurement(tmp_path):
    run = train(tmp_path, Taker(), scheduler=OneCycleOptions(), measure=PairedOptions(block_steps=5))
    assert (run.record.status, len(run.turns)) == (Status.FINISHED, 4)


def test_a_finished_run_takes_further_turns_and_keeps_its_epochs(tmp_path):
    first = train(tmp_path, Taker(3))
    kept = train(tmp_path, Taker(3))
    assert (kept.record, kept.turns) == (first.record, first.turns)
    taker = Taker(2)
    taker.again, taker.session = True, "b2"
    again = train(tmp_path, taker)
    assert taker.num_training == 0
    assert again.epochs == first.epochs
    assert (again.record.status, again.record.reason, again.record.attempt) == (Status.FINISHED, None, 2)
    assert [turn.session for turn in again.turns] == ["a1"] * 3 + ["b2"] * 2
    assert [session_of_epoch(again.record, epoch) for epoch in (1, 2)] == ["a1"] * 2
    assert sessions_of(again.record) == {"a1", "b2"}


def test_an_early_stopped_run_takes_further_turns(tmp_path):
    early = {"epochs": 5, "early_stop": EarlyStopOptions(metric="val_accuracy", patience=1, min_delta=0.9)}
    first = train(tmp_path, Taker(3), **early)
    taker = Taker(2)
    taker.again = True
    again = train(tmp_path, taker, **early)
    assert (again.record.status, again.record.reason) == (Status.FINISHED, Reason.EARLY_STOPPED)
    assert again.epochs == first.epochs
    assert len(again.turns) == 5


def test_a_run_that_diverged_is_not_measured(tmp_path):
    run = train(tmp_path, Taker(), lr=1e38, epochs=3, optimizer=SgdOptions())
    assert (run.record.status, run.record.reason) == (Status.FAILED, Reason.DIVERGED)
    assert run.turns == []


def test_paired_without_turns_is_refused_before_a_folder_is_claimed(tmp_path):
    with pytest.raises(UsageError, match="`measure` must be single if runs cannot take turns, got paired"):
        train(tmp_path, None)
    assert not (tmp_path / "runs").exists()


TIGHT = """
import torch


class Net(torch.nn.Module):
    def __init__(self, in_shape, num_classes):
        super().__init__()
        self.layer = torch.nn.Linear(in_shape[1] * in_shape[2], num_classes)

    def forward(self, images):
        if images.device.type != "meta" and len(images) > 5:
            raise torch.OutOfMemoryError("no room")
        return self.layer(images.flatten(1))
"""


def test_measured_steps_follow_the_settings(own_module, tmp_path):
    own_module("tight", TIGHT)
    model = {"name": "custom", "_target_": "tight.Net"}
    run = train(tmp_path, Taker(), model=model, micro_batch=5, measure=PairedOptions(block_steps=5))
    assert (run.record.status, len(run.turns)) == (Status.FINISHED, 4)
