"""The built-in job: reproducible by seed, and equal after an interruption."""

import datetime
import hashlib
import json
from contextlib import contextmanager

import msgspec
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from runmanager.app.run_cell import train_cell
from runmanager.errors import TensorMismatchError
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.heartbeat import Beat, write_beat
from runmanager.records.storage.reader import read_run, read_sweep
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.storage.versioned_file import encode_record
from runmanager.results.tables.results_table import result_rows
from runmanager.tracking.lifecycle.finalizers import last_run_begun_here
from runmanager.tracking.options import EarlyStopOptions
from runmanager.tracking.sinks import LogSink, MemorySink
from runmanager.tracking.tensorboard.sink import TensorBoardSink
from runmanager.training import job as training_job
from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import (
    CnnOptions,
    ConstantOptions,
    CosineOptions,
    DataLoaderOptions,
    LogisticOptions,
    MultistepOptions,
    OneCycleOptions,
    ResidentOptions,
    SgdOptions,
)
from runmanager.training.options.job import CheckpointOptions
from runmanager.training.step import automatic_step, stepper

from ..job_options import job_options

OWN = """
import random

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, in_shape, num_classes, break_at=0):
        super().__init__()
        self.layer = nn.Linear(in_shape[1] * in_shape[2], num_classes)
        self.norm = nn.BatchNorm1d(num_classes)
        self.dropout = nn.Dropout(0.3)
        self.left = break_at

    def forward(self, images):
        if self.training:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self.dropout(self.norm(self.layer(images.flatten(1)))) + random.random()


class Tight(nn.Module):
    def __init__(self, in_shape, num_classes):
        super().__init__()
        self.layer = nn.Linear(in_shape[1] * in_shape[2], num_classes)
        self.dropout = nn.Dropout(0.3)

    def forward(self, images):
        scores = self.dropout(self.layer(images.flatten(1)))
        if images.device.type != "meta" and len(images) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return scores
"""


@pytest.fixture
def job(own_module, only_last_pictures, tmp_path):
    own_module("own", OWN)
    return Job(tmp_path)


class Job:
    """Runs one cell, several times in the same folder if the name is the same."""

    def __init__(self, root):
        self.root = root
        self.memory = MemorySink()

    def options(self, **changes):
        return job_options(**{"lr": 0.05, "epochs": 4, "model": {"name": "custom", "_target_": "own.Net"}, **changes})

    def __call__(self, name, *, stop_after=None, **changes):
        class Stopping(MemorySink):
            def epoch(self, record, details):
                if record.epoch == stop_after:
                    last_run_begun_here().interrupt()
                return super().epoch(record, details)

        self.memory = Stopping()
        paths = SweepPaths(self.root / "sweep").run(name)
        sinks = [LogSink(), TensorBoardSink(), self.memory]
        end = train_cell(paths, self.options(**changes), {"name": name, "device": "cpu"}, sinks=sinks)
        if end is not None and end.error is not None:
            raise end.error
        return self.stored(name)

    def stored(self, name):
        return read_run(SweepPaths(self.root / "sweep").run(name))


def metrics(run):
    """The epochs without times."""
    return [
        (each.epoch, each.loss, each.accuracy, each.val_loss, each.val_accuracy, each.samples) for each in run.epochs
    ]


def same(one, other):
    """Whether two nested values are equal, bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def final_state(run):
    state = torch.load(run.paths.checkpoint, weights_only=True)
    del state["progress"]
    return state


def scalars(run):
    accumulator = EventAccumulator(str(run.paths.root), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
        if not tag.startswith(("time/", "throughput/"))
    }


def pictures(run):
    accumulator = EventAccumulator(str(run.paths.root), size_guidance={"images": 0}).Reload()
    return {
        tag: [(event.step, hashlib.sha256(event.encoded_image_string).hexdigest()) for event in accumulator.Images(tag)]
        for tag in accumulator.Tags()["images"]
    }


def assert_equal(resumed, whole):
    assert resumed.record.status == whole.record.status == "finished"
    assert metrics(resumed) == metrics(whole)
    assert same(final_state(resumed), final_state(whole))
    assert scalars(resumed) == scalars(whole)
    assert pictures(resumed) == pictures(whole)
    assert {tag: [step for step, _ in shown] for tag, shown in pictures(whole).items()} == {
        "images": [0],
        "predictions": [whole.epochs[-1].epoch],
        "confusion_matrix": [whole.epochs[-1].epoch],
    }
    assert len(list(resumed.paths.root.glob("events*"))) == 1


SCHEDULES = [CosineOptions(), OneCycleOptions(), MultistepOptions(milestones=[2]), ConstantOptions()]


@pytest.mark.parametrize("scheduler", SCHEDULES, ids=lambda options: options.name)
def test_a_resumed_run_equals_an_uninterrupted_one(job, scheduler):
    whole = job("whole", scheduler=scheduler, log_every=2, evaluate_first=True)
    assert [each.epoch for each in whole.epochs] == [0, 1, 2, 3, 4]
    stopped = job("broken", scheduler=scheduler, log_every=2, evaluate_first=True, stop_after=2)
    assert (stopped.record.status, stopped.record.reason) == ("killed", "interrupted")
    assert [each.epoch for each in stopped.epochs] == [0, 1, 2]
    resumed = job("broken", scheduler=scheduler, log_every=2, evaluate_first=True)
    assert_equal(resumed, whole)
    assert resumed.record.attempt == 2 and not resumed.paths.attempts.exists()
    assert [record.epoch for record, _ in job.memory.epochs] == [3, 4], "no finished epoch is run twice"
    assert [each.warmup for each in resumed.epochs] == [True, True, False, True, False], "each process warms up"
    seconds = [each.run_seconds for each in resumed.epochs]
    assert seconds == sorted(seconds), "the time of the run continues, too"


@pytest.mark.parametrize("loader", [DataLoaderOptions(), ResidentOptions()], ids=lambda options: options.name)
def test_a_run_interrupted_within_an_epoch_repeats_it(job, loader):
    whole = job("whole", loader=loader, optimizer=SgdOptions(momentum=0.9))
    own = {
        "name": "custom",
        "_target_": "own.Net",
        "break_at": 8,
    }  # three steps in an epoch: the second step of the third epoch
    with pytest.raises(KeyboardInterrupt):
        job("broken", loader=loader, optimizer=SgdOptions(momentum=0.9), model=own)
    stopped = job.stored("broken")
    assert (stopped.record.status, stopped.record.reason) == ("killed", "interrupted")
    assert len(stopped.epochs) == 2 and "KeyboardInterrupt" in stopped.paths.error.read_text()
    resumed = job("broken", loader=loader, optimizer=SgdOptions(momentum=0.9))
    assert_equal(resumed, whole)
    assert not resumed.paths.error.exists(), "a run that went well has no error"
    assert (resumed.paths.attempts / "1" / "error.txt").exists()


WAYS = [{"channels_last": True, "micro_batch": None}, {"channels_last": False, "micro_batch": 5}, {"precision": "bf16"}]
SMALL_IMAGES = FakeOptions(size=40, val_size=20, in_shape=[1, 16, 16], num_classes=3)


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_resuming_works_with_every_kind_of_step(job, way):
    cell = {"dataset": SMALL_IMAGES, "model": CnnOptions(), "epochs": 2, **way}
    whole = job("whole", **cell)
    job("broken", **cell, stop_after=1)
    assert_equal(job("broken", **cell), whole)
    assert whole.record.measurements.precision == way.get("precision", "fp32")
    plain = {"channels_last": False, "micro_batch": None}  # by default, under bf16
    assert whole.record.measurements.chosen == (msgspec.UNSET if "micro_batch" in way else plain)


def plain_steps(patch):
    """Another machine, whose rule is to compute steps the plain way."""
    patch.setattr(stepper, "resolved_channels_last", lambda *args, **kwargs: False)
    patch.setattr(stepper, "resolved_micro_batch", lambda *args, **kwargs: None)


def fast_steps(patch):
    """A machine whose rule is to store channels last, and to split batches of 16 samples."""
    patch.setattr(stepper, "resolved_channels_last", lambda *args, **kwargs: True)
    patch.setattr(automatic_step, "_LARGEST_BYTES", 50_000)  # those of some samples of the CNN


CHOICES = [(fast_steps, plain_steps, True), (plain_steps, fast_steps, False)]


@pytest.mark.parametrize(("here", "elsewhere", "channels_last"), CHOICES, ids=["fast first", "plain first"])
def test_a_resumed_run_keeps_what_auto_became(job, monkeypatch, here, elsewhere, channels_last):
    cell = {"dataset": SMALL_IMAGES, "model": CnnOptions(), "epochs": 3}
    with monkeypatch.context() as patch:
        here(patch)
        whole = job("whole", **cell)
        job("broken", **cell, stop_after=1)
    chosen = whole.record.measurements.chosen
    assert (chosen["channels_last"], chosen["micro_batch"] is not None) == (channels_last, channels_last)
    with monkeypatch.context() as patch:
        elsewhere(patch)
        resumed = job("broken", **cell)
        other = job("other", **cell)
    assert_equal(resumed, whole)
    assert resumed.record.measurements.chosen == chosen != other.record.measurements.chosen
    assert [each.loss for each in other.epochs] == pytest.approx([each.loss for each in whole.epochs], rel=1e-5)


@pytest.mark.parametrize("kept", [(), (0, 2)], ids=["all", "one"])
def test_a_resumed_run_says_which_epochs_lost_their_records(job, kept):
    """The checkpoint has the record of the last epoch alone."""
    stopped = job("broken", stop_after=3, epochs=4)
    lines = stopped.paths.epochs.read_bytes().splitlines(keepends=True)
    stopped.paths.epochs.write_bytes(b"".join(lines[at] for at in kept))
    resumed = job("broken", epochs=4)
    lost = {(): "2 epochs", (0, 2): "1 epoch"}[kept]
    assert resumed.record.deviations == (f"{lost} before the run was resumed had no record in epochs.jsonl any more",)
    assert [each.epoch for each in resumed.epochs] == ([3, 4] if not kept else [1, 3, 4])


TIGHT = {"model": {"name": "custom", "_target_": "own.Tight"}, "on_oom": "halve", "epochs": 2}
HALVED = tuple(
    f"out of memory with {count} samples at once: steps are computed in pieces of {count // 2}" for count in (16, 8)
)


def test_halved_batches_are_recorded(job):
    with pytest.raises(torch.OutOfMemoryError):
        job("fails", **{**TIGHT, "on_oom": "fail"})
    assert job.stored("fails").record.reason == "out_of_memory"
    whole, pieces = job("whole", **TIGHT), job("pieces", **{**TIGHT, "micro_batch": 4})
    assert metrics(whole) == metrics(pieces)
    assert whole.record.deviations == HALVED and pieces.record.deviations == ()
    job("broken", **TIGHT, stop_after=1)
    resumed = job("broken", **TIGHT)
    assert_equal(resumed, whole)
    assert resumed.record.deviations == HALVED
    table = result_rows(read_sweep(SweepPaths(job.root / "sweep")), None)
    assert f"whole: {HALVED[1]}." in table.notes


def test_a_checkpoint_without_a_step_state_can_be_resumed(job):
    whole = job("whole", model=LogisticOptions(), epochs=2)
    stopped = job("broken", model=LogisticOptions(), epochs=2, stop_after=1)
    state = torch.load(stopped.paths.checkpoint, weights_only=True)
    del state["step"]
    torch.save(state, stopped.paths.checkpoint)
    assert_equal(job("broken", model=LogisticOptions(), epochs=2), whole)


def test_a_missing_epoch_record_is_restored_from_the_checkpoint(job, monkeypatch):
    whole = job("whole")
    append = RunFolder.append

    def torn(self, epoch):
        if epoch.epoch == 2:
            raise KeyboardInterrupt
        append(self, epoch)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunFolder, "append", torn)
        job("broken")
    assert [each.epoch for each in job.stored("broken").epochs] == [1]
    assert_equal(job("broken"), whole)


def test_an_interruption_before_the_final_pictures_does_not_lose_them(job, monkeypatch):
    plain = {"model": LogisticOptions(), "epochs": 2}
    whole = job("whole", **plain)
    seen = []

    def torn(self, record, evaluation):
        seen.append(job.stored("broken").record.status)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TensorBoardSink, "finish", torn)
        job("broken", **plain)
    stopped = job.stored("broken")
    assert seen == ["running"] and stopped.record.status == "killed" and len(stopped.epochs) == 2
    resumed = job("broken", **plain)
    assert_equal(resumed, whole)
    assert not job.memory.epochs, "no epoch is run or recorded again"


def test_a_failed_write_at_the_end_fails_the_run(job, monkeypatch):
    def full(self, record, evaluation):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(TensorBoardSink, "finish", full)
        job("broken", epochs=1)
    stopped = job.stored("broken").record
    assert (stopped.status, stopped.reason) == ("failed", "exception") and "No space left" in stopped.message
    assert job("broken", epochs=1).record.status == "finished"


def test_epochs_since_the_last_checkpoint_are_repeated(job):
    every = CheckpointOptions(every=3)
    whole = job("whole", checkpoint=every, epochs=5)
    stopped = job("broken", checkpoint=every, epochs=5, stop_after=4)
    assert len(stopped.epochs) == 4
    resumed = job("broken", checkpoint=every, epochs=5)
    assert_equal(resumed, whole)
    assert [record.epoch for record, _ in job.memory.epochs] == [4, 5]


def test_a_run_without_a_checkpoint_starts_again(job):
    none = CheckpointOptions(every=0)
    job("broken", checkpoint=none, stop_after=2)
    again = job("broken", checkpoint=none)
    assert again.record.status == "finished" and len(again.epochs) == 4
    assert not again.paths.checkpoint.exists()
    aside = again.paths.attempts / "1"
    assert json.loads((aside / "run.json").read_text())["status"] == "killed"
    assert len((aside / "epochs.jsonl").read_text().splitlines()) == 2


def test_the_event_file_is_valid_after_lost_events(job):
    stopped = job("broken", stop_after=2)
    (events,) = stopped.paths.root.glob("events*")
    with events.open("r+b") as file:
        file.truncate(events.stat().st_size // 2)
    resumed = job("broken")
    assert resumed.record.status == "finished"
    assert [step for step, _ in scalars(resumed)["train/loss"]][-2:] == [3, 4]


def moved(stopped):
    """Change a stopped run as if another machine had produced it."""
    environment = msgspec.structs.replace(stopped.record.environment, host="elsewhere", torch_threads=64)
    replace_file(stopped.paths.record, encode_record(msgspec.structs.replace(stopped.record, environment=environment)))
    return stopped


def test_epochs_of_another_machine_are_not_measured_and_are_noted(job):
    moved(job("broken", stop_after=3, epochs=6))
    resumed = job("broken", epochs=6)
    assert [each.warmup for each in resumed.epochs] == [True, True, True, True, False, False]
    note = "epochs 1 to 3 were made in another environment (host elsewhere, now "
    assert note in resumed.paths.log.read_text()
    assert (resumed.record.environment.torch_threads, resumed.record.earlier[0].environment.torch_threads) == (1, 64)


def test_each_attempt_is_a_separate_span(job):
    first = job("broken", stop_after=2)
    second = job("broken", stop_after=3)
    third = job("broken")
    assert third.record.started_at == first.record.started_at
    assert [(each.started_at, each.ended_at, each.last_epoch) for each in third.record.earlier] == [
        (first.record.started_at, first.record.ended_at, 2),
        (second.record.resumed_at, second.record.ended_at, 3),
    ]
    assert first.record.ended_at < second.record.resumed_at < second.record.ended_at < third.record.resumed_at
    assert [each.warmup for each in third.epochs] == [True, False, True, True], "each process warms up, and no more"
    assert "another environment" not in third.paths.log.read_text()


def test_an_attempt_with_an_unknown_end_ends_with_its_last_sign_of_life(job):
    stopped = job("broken", stop_after=2)
    begun = datetime.datetime.fromisoformat(stopped.record.started_at)
    gone = msgspec.structs.replace(stopped.record.owner, start_ticks=1)
    vanished = msgspec.structs.replace(stopped.record, status="running", reason=None, ended_at=None, owner=gone)
    replace_file(stopped.paths.record, encode_record(vanished))
    last_beat = int(begun.timestamp()) + 3600
    write_beat(stopped.paths.heartbeat, Beat(1800, 6, last_beat))
    (attempt,) = job("broken").record.earlier
    assert datetime.datetime.fromisoformat(attempt.ended_at).timestamp() == last_beat


def test_a_damaged_checkpoint_is_kept_and_the_run_starts_again(job):
    whole = job("whole")
    stopped = job("broken", stop_after=2)
    stopped.paths.checkpoint.write_bytes(b"damaged")
    again = job("broken")
    assert_equal(again, whole)
    (note,) = set(again.record.notes) - set(whole.record.notes)
    assert note == (
        "begun again from the start: the checkpoint is damaged (BadZipFile); it is kept as attempts/1/checkpoint.pt"
    )
    aside = again.paths.attempts / "1"
    assert (aside / "checkpoint.pt").read_bytes() == b"damaged"
    assert json.loads((aside / "run.json").read_text())["reason"] == "interrupted"
    assert len((aside / "epochs.jsonl").read_text().splitlines()) == 2


def test_a_finished_run_is_kept(job):
    first = job("run")
    before = first.paths.record.read_bytes()
    again = job("run")
    assert again.paths.record.read_bytes() == before and job.memory.epochs == []


def test_the_same_seed_gives_the_same_numbers(job):
    first, second, other = job("first"), job("second"), job("other", seed=1)
    assert metrics(first) == metrics(second) and same(final_state(first), final_state(second))
    assert metrics(first) != metrics(other)


def test_workers_and_resident_data_give_the_same_numbers(job):
    plain = job("plain", model=LogisticOptions(), epochs=2)
    workers = job("workers", model=LogisticOptions(), epochs=2, num_workers=1)
    resident = job("resident", model=LogisticOptions(), epochs=2, loader=ResidentOptions())
    assert metrics(plain) == metrics(workers) == metrics(resident)


DOUBLED = """
import torch
from torch.utils.data import Dataset

def doubled(image):
    return image * 2

class Images(Dataset):
    transform = staticmethod(doubled)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return self.transform(torch.full((1, 6, 6), index / 100)), index % 3
"""


def test_a_transform_of_the_samples_is_noted(job, own_module):
    own_module("transformed", DOUBLED)
    dataset = {"name": "custom", "_target_": "transformed.Images"}
    run = job("run", dataset=dataset, model=LogisticOptions(), epochs=1)
    note = "loader: samples are read one by one, through the dataset's transform (doubled)"
    assert run.record.notes.count(note) == 1 and f"note: {note}" in run.paths.log.read_text()
    resident = job("resident", dataset=dataset, model=LogisticOptions(), epochs=1, loader=ResidentOptions())
    assert metrics(resident) == metrics(run)
    assert any("runs only once" in note for note in resident.record.notes)


def test_the_evaluation_before_training_is_epoch_0(job):
    without, run = job("without"), job("with", evaluate_first=True)
    zero = run.epochs[0]
    assert (zero.epoch, zero.samples, zero.epoch_seconds, zero.loss, zero.warmup) == (0, 0, None, None, True)
    assert zero.val_loss is not None and zero.val_accuracy is not None and zero.eval_seconds > 0
    assert len(run.epochs) == 5 and [each.epoch for each in without.epochs] == [1, 2, 3, 4]
    logged = scalars(run)
    assert [step for step, _ in logged["val/loss"]] == [0, 1, 2, 3, 4]
    assert [step for step, _ in logged["train/loss"]] == [1, 2, 3, 4]


def test_the_used_learning_rate_is_logged(job):
    run = job("run", scheduler=MultistepOptions(milestones=[2], gamma=0.1))
    assert scalars(run)["optim/lr"] == [(1, pytest.approx(0.05)), (2, pytest.approx(0.05))] + [
        (epoch, pytest.approx(0.005)) for epoch in (3, 4)
    ]


def test_the_last_smaller_batch_counts(job):
    run = job("run", log_every=1, model=LogisticOptions())
    assert [each.samples for each in run.epochs] == [40] * 4
    assert [step for step, _ in scalars(run)["step/loss"]] == list(range(1, 13))
    losses = [value for _, value in scalars(run)["step/loss"]][:3]
    assert run.epochs[0].loss == pytest.approx((16 * losses[0] + 16 * losses[1] + 8 * losses[2]) / 40, rel=1e-6)


def test_the_work_of_a_full_batch_is_recorded(job):
    found = job("run", model=LogisticOptions(), optimizer=SgdOptions()).record.measurements
    assert found.flop_per_step == 2 * 16 * 36 * 3 * 2  # forward, and the gradient of the weights
    assert found.operations_per_step and found.bytes_per_step and found.step_units == {"samples": 16.0}


def test_each_epoch_has_another_order(job):
    # The rate is too small to change a weight, so a step's loss identifies its samples.
    run = job("run", log_every=1, model=LogisticOptions(), optimizer=SgdOptions(), lr=1e-30, epochs=2)
    losses = [value for _, value in scalars(run)["step/loss"]]
    assert losses[:3] != losses[3:]
    assert run.epochs[0].loss == pytest.approx(run.epochs[1].loss, rel=1e-6)


def test_early_stopping_and_divergence(job):
    stop = EarlyStopOptions(metric="val_accuracy", patience=1, min_delta=1.0)
    stopped = job("stopped", early_stop=stop)
    assert (stopped.record.status, stopped.record.reason) == ("finished", "early_stopped")
    assert len(stopped.epochs) == 2
    diverged = job("diverged", model=LogisticOptions(), optimizer=SgdOptions(), lr=1e38)
    assert (diverged.record.status, diverged.record.reason) == ("failed", "diverged")
    assert len(diverged.epochs) < 4


def test_a_model_that_does_not_fit_is_explained_and_recorded(job, own_module):
    source = "from torch import nn\n\ndef net(num_classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(7, 3))\n"
    own_module("unfit", source)
    with pytest.raises(TensorMismatchError, match="in_features=36"):
        job("run", model={"name": "custom", "_target_": "unfit.net"})
    record = job.stored("run").record
    assert (record.status, record.reason) == ("failed", "exception")
    assert record.message.startswith("TensorMismatchError: A sample must have 7 values")


def test_its_device_is_the_current_one(job, monkeypatch):
    """Pinned memory, and the wait before a step is captured, belong to whichever is."""
    current = []

    @contextmanager
    def noted(device):
        current.append(device)
        yield
        assert len(job.memory.ends) == 1
        current.pop()

    monkeypatch.setattr(training_job, "made_current", noted)
    job("named", epochs=1)
    assert not current and job.memory.ends
