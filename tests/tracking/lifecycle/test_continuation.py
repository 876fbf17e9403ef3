"""A run that continues a finished one with fewer epochs: bit-equal to a run of all epochs at once."""

import json
import struct
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from runmanager.app.run_cell import train_cell
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_run
from runmanager.results.load.contention import exposure_of
from runmanager.tracking.lifecycle import open_run
from runmanager.tracking.lifecycle.finalizers import last_run_begun_here
from runmanager.tracking.manager import RunManager
from runmanager.tracking.options import EarlyStopOptions, RunOptions
from runmanager.tracking.sinks import LogSink, MemorySink
from runmanager.tracking.tensorboard.sink import TensorBoardSink
from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import (
    AdamOptions,
    AdamWOptions,
    CnnOptions,
    ConstantOptions,
    DataLoaderOptions,
    LogisticOptions,
    MultistepOptions,
    ResidentOptions,
    SgdOptions,
)
from runmanager.training.options.job import CheckpointOptions, TrainingOptions

from ...training.test_job import metrics, pictures, same, scalars

BASE = {
    "batch_size": 16,
    "device": "cpu",
    "dataset": FakeOptions(size=40, val_size=20, in_shape=[1, 16, 16], num_classes=3),
    "model": LogisticOptions(),
    "optimizer": AdamOptions(),
    "scheduler": ConstantOptions(),
    "loader": DataLoaderOptions(),
}


class Job:
    """Trains cells of the built-in job in one sweep folder."""

    def __init__(self, root):
        self.paths = SweepPaths(root / "sweep")
        self.memory = MemorySink()

    def __call__(self, name, epochs, *, continues=None, stop_after=None, **changes: Any):
        class Stopping(MemorySink):
            def epoch(self, record, details):
                if record.epoch == stop_after:
                    last_run_begun_here().interrupt()
                return super().epoch(record, details)

        self.memory = Stopping()
        train_cell(
            self.paths.run(name),
            TrainingOptions(epochs=epochs, **{**BASE, **changes}),
            {"epochs": epochs, "device": "cpu", "lr": changes.get("lr", 0.01)},
            sinks=[LogSink(), TensorBoardSink(), self.memory],
            continues=None if continues is None else self.paths.run(continues),
        )
        return read_run(self.paths.run(name))

    @property
    def trained(self):
        """The epochs of the last run's own process."""
        return [record.epoch for record, _ in self.memory.epochs]


def weights(run, file="checkpoint.pt"):
    """What a checkpoint holds, but for times."""
    state = torch.load(run.paths.root / file, weights_only=True)
    state.pop("progress", None)
    if "best" in state:
        state["best"] = (state["best"]["value"], state["best"]["record"]["epoch"])
    return state


def hparams(run):
    content = EventAccumulator(str(run.paths.root)).Reload().SummaryMetadata("_hparams_/session_start_info")
    start = HParamsPluginData.FromString(content.plugin_data.content).session_start_info
    return {name: value.number_value for name, value in start.hparams.items()}


def assert_equal(longer, whole):
    assert (longer.record.status, longer.record.reason) == (whole.record.status, whole.record.reason)
    assert metrics(longer) == metrics(whole)
    assert same(weights(longer), weights(whole))
    assert scalars(longer) == scalars(whole)
    assert pictures(longer) == pictures(whole)
    assert hparams(longer) == hparams(whole)
    assert longer.paths.best.exists() is whole.paths.best.exists()
    if whole.paths.best.exists():
        assert same(weights(longer, "best.pt"), weights(whole, "best.pt"))


CELLS = st.fixed_dictionaries(
    {
        "lr": st.sampled_from([0.003, 0.05, 0.5]),
        "batch_size": st.sampled_from([7, 16, 64]),
        "seed": st.integers(0, 3),
        "optimizer": st.sampled_from([AdamOptions(), SgdOptions(momentum=0.9), AdamWOptions()]),
        "scheduler": st.sampled_from([ConstantOptions(), MultistepOptions(milestones=[2, 4], gamma=0.3)]),
        "loader": st.sampled_from([DataLoaderOptions(), ResidentOptions()]),
        "model": st.sampled_from([LogisticOptions(), CnnOptions()]),
        "evaluate_first": st.booleans(),
        "precision": st.sampled_from(["fp32", "bf16"]),
        "micro_batch": st.sampled_from([None, 5]),
        "log_every": st.sampled_from([0, 2]),
        "checkpoint": st.builds(CheckpointOptions, every=st.integers(1, 4), keep_best=st.sampled_from([None, "loss"])),
        "early_stop": st.sampled_from([EarlyStopOptions(), EarlyStopOptions("val_loss", patience=2)]),
    }
)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(cell=CELLS, short=st.integers(1, 3), more=st.integers(1, 3))
def test_more_epochs_equal_all_epochs_at_once(tmp_path_factory, only_last_pictures, cell, short, more):
    job = Job(tmp_path_factory.mktemp("cells"))
    shorter = job("shorter", short, **cell)
    longer = job("longer", short + more, continues="shorter", **cell)
    trained = job.trained
    assert_equal(longer, job("whole", short + more, **cell))
    if shorter.record.reason is None:
        assert longer.record.continued_from == "shorter"
        assert trained[0] == short + 1, "no epoch is trained twice"
        assert all(epoch.warmup for epoch in longer.epochs if epoch.epoch <= short + 1)


def test_a_chain_of_longer_runs_names_each_run_and_measures_each_epoch_once(job):
    runs = [job("a", 3), job("b", 6, continues="a"), job("c", 9, continues="b")]
    assert_equal(runs[2], job("whole", 9))
    assert [run.record.continued_from for run in runs[1:]] == ["a", "b"]
    assert [(each.run, each.last_epoch) for each in runs[2].record.earlier] == [("a", 3), ("b", 6)]
    measured = [{epoch.epoch for epoch in run.epochs if not epoch.warmup} for run in runs]
    assert measured == [{2, 3}, {5, 6}, {8, 9}]
    spans = [exposure_of(run).spans for run in runs]
    assert [len(each) for each in spans] == [1, 1, 1], "only what a run's own process took is its time on the machine"
    assert runs[2].record.attempt == 1 and not runs[2].paths.attempts.exists()


def test_a_continued_run_that_is_killed_is_resumed(job):
    job("shorter", 2)
    stopped = job("longer", 5, continues="shorter", stop_after=3)
    assert (stopped.record.status, len(stopped.epochs)) == ("killed", 3)
    resumed = job("longer", 5, continues="shorter")
    assert job.trained == [4, 5]
    assert_equal(resumed, job("whole", 5))
    assert [each.warmup for each in resumed.epochs] == [True, True, True, True, False]
    assert (resumed.record.continued_from, resumed.record.attempt) == ("shorter", 2)
    assert [each.run for each in resumed.record.earlier] == ["shorter", UNSET]


def test_a_kill_while_files_are_copied_leaves_a_run_that_starts_again(job, monkeypatch):
    shorter = job("shorter", 2)

    def killed(path, state):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(open_run, "write_state", killed)
        job("longer", 4, continues="shorter")
    left = read_run(job.paths.run("longer"))
    assert not left.paths.checkpoint.exists() and all(epoch.warmup for epoch in left.epochs)
    record = json.loads(left.paths.record.read_text())
    record["owner"]["start_ticks"] = 1  # its process is gone
    left.paths.record.write_text(json.dumps(record))
    again = job("longer", 4, continues="shorter")
    assert_equal(again, job("whole", 4))
    assert again.record.attempt == 2 and (again.paths.attempts / "1" / "epochs.jsonl").exists()
    assert read_run(shorter.paths) == shorter, "the shorter run is as it was"


def damaged(run):
    run.paths.checkpoint.write_bytes(b"damaged")
    return "its checkpoint is damaged"


def lost(run):
    run.paths.checkpoint.unlink()
    return "it has no checkpoint any more"


def begun_again(run):
    record = json.loads(run.paths.record.read_text())
    replace_file(run.paths.record, json.dumps({**record, "status": "running"}).encode())
    return "it is running"


def other(run):
    record = json.loads(run.paths.record.read_text())
    replace_file(run.paths.record, json.dumps({**record, "config": {**record["config"], "lr": 7}}).encode())
    return "its settings differ in more than the number of epochs"


@pytest.mark.parametrize("change", [damaged, lost, begun_again, other])
def test_a_run_that_can_no_longer_be_continued_is_named_and_the_new_one_starts(job, change):
    reason = change(job("shorter", 2))
    longer = job("longer", 4, continues="shorter")
    assert job.trained == [1, 2, 3, 4]
    assert_equal(longer, job("whole", 4))
    assert longer.record.continued_from is UNSET
    (note,) = [line for line in longer.record.notes if "shorter" in line]
    assert note.startswith(f"begun from the start instead of continuing shorter: {reason}")


def test_a_checkpoint_that_does_not_fit_leaves_nothing_of_the_shorter_run(job):
    shorter = job("shorter", 2)
    state = torch.load(shorter.paths.checkpoint, weights_only=True)
    state["model"] = {"other": torch.zeros(1)}
    torch.save(state, shorter.paths.checkpoint)
    longer = job("longer", 4, continues="shorter")
    assert job.trained == [1, 2, 3, 4]
    assert_equal(longer, job("whole", 4))
    assert longer.record.earlier == () and not longer.paths.attempts.exists()
    assert any(line.startswith("begun from the start instead of continuing shorter") for line in longer.record.notes)


def test_an_event_file_that_was_cut_off_is_continued_up_to_its_last_whole_record(job):
    shorter = job("shorter", 2)
    (events,) = shorter.paths.root.glob("events*")
    with events.open("r+b") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        file.truncate(12 + length + 4 + 20)  # one record and a part of the next
    longer = job("longer", 3, continues="shorter")
    assert longer.record.status == "finished"
    assert [step for step, _ in scalars(longer)["train/loss"]] == [3]


@pytest.fixture
def job(only_last_pictures, tmp_path):
    return Job(tmp_path)


class Loop:
    """A user's loop with a state, in the sweep folder `root`."""

    def __init__(self, root, *, decay=0.9):
        self.manager = RunManager(root, console=False)
        self.decay = decay
        self.trained = []

    def __call__(self, epochs, *, lr=0.05, **options):
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 3))
        optimizer = torch.optim.AdamW(network.parameters(), lr=lr)
        state = {"optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, self.decay)}
        data = torch.utils.data.TensorDataset(torch.rand(22, 4), torch.randint(3, (22,)))
        loader = torch.utils.data.DataLoader(data, 4, shuffle=True)
        self.trained = []
        given = RunOptions(**{"extends_epochs": True, **options})
        with self.manager.run({"lr": lr, "epochs": epochs}, network, loader, state=state, options=given) as run:
            for epoch in run.epochs(epochs):
                self.trained.append(epoch.number)
                for inputs, labels in epoch.batches(loader):
                    preds = network(inputs)
                    loss = torch.nn.functional.cross_entropy(preds, labels)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    epoch.track(loss, preds, labels)
                state["scheduler"].step()
        return read_run(run.paths)


def test_a_users_loop_continues_where_it_promises_that_epochs_do_not_depend_on_their_number(tmp_path):
    loop = Loop(tmp_path / "loop")
    for epochs in (2, 3):
        loop(epochs, keep_best="loss")
    other = loop(7, lr=0.5, keep_best="loss")
    longer = loop(6, keep_best="loss")
    assert loop.trained == [4, 5, 6] and other.record.continued_from is UNSET
    assert longer.record.continued_from.startswith("lr=0.05,epochs=3-")
    whole = Loop(tmp_path / "whole")(6, keep_best="loss")
    assert metrics(longer) == metrics(whole) and scalars(longer) == scalars(whole)
    assert same(weights(longer), weights(whole)) and same(weights(longer, "best.pt"), weights(whole, "best.pt"))


def test_a_users_loop_starts_with_its_first_epoch_without_that_promise(tmp_path):
    loop = Loop(tmp_path / "loop")
    loop(2)
    assert loop(4, extends_epochs=False).record.continued_from is UNSET
    assert loop.trained == [1, 2, 3, 4]


def test_a_users_loop_starts_with_its_first_epoch_if_other_weights_were_kept(tmp_path):
    loop = Loop(tmp_path / "loop")
    loop(2)
    longer = loop(4, keep_best="loss")
    assert loop.trained == [1, 2, 3, 4]
    assert any("it kept the weights of another epoch" in line for line in longer.record.notes)
