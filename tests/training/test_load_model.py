"""The best weights of a run, and loading the model of a stored run."""

import dataclasses
import random
import sys

import msgspec
import pytest
import torch

import runmanager
from runmanager.app.run_cell import train_cell
from runmanager.errors import RecordError, UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_run
from runmanager.tracking.checkpoint.checkpoint_file import read_state
from runmanager.tracking.lifecycle.finalizers import last_run_begun_here
from runmanager.tracking.manager import RunManager
from runmanager.tracking.sinks import MemorySink
from runmanager.training.datasets.registry import load_dataset
from runmanager.training.load_model import load_model
from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import (
    LogisticOptions,
    MlpOptions,
)
from runmanager.training.options.job import CheckpointOptions, TrainingOptions

from ..job_options import job_options

OWN = """
from torch import nn


class Net(nn.Module):
    def __init__(self, in_shape, num_classes, width=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(in_shape[1] * in_shape[2], width), nn.BatchNorm1d(width), nn.Dropout(0.5),
            nn.Linear(width, num_classes),
        )

    def forward(self, images):
        return self.layers(images)
"""
CUSTOM = {"name": "custom", "_target_": "own.Net", "width": 6}
FAKE = FakeOptions(size=40, val_size=20, in_shape=[1, 6, 6], num_classes=3)


class Stopping(MemorySink):
    """Sink that stops its run after an epoch."""

    def __init__(self, epoch):
        super().__init__()
        self._epoch = epoch

    def epoch(self, record, details):
        if record.epoch == self._epoch:
            last_run_begun_here().interrupt()
        return super().epoch(record, details)


@pytest.fixture
def train(own_module, tmp_path):
    """Train a run of `outputs/sweep` in the current folder, and read it."""
    own_module("own", OWN)

    def train_and_read(name="lr=0.5-0123abcd", *, model=None, stop_after=None, epochs=6, every=1, keep_best="val_loss"):
        options = job_options(
            lr=0.5,
            epochs=epochs,
            dataset=FAKE,
            model=model or MlpOptions(hidden=[5]),
            checkpoint=CheckpointOptions(every=every, keep_best=keep_best),
        )
        paths = SweepPaths(tmp_path / "project" / "outputs" / "sweep").run(name)
        params = {key: plain(getattr(options, key)) for key in ("lr", "device", "model")}
        train_cell(paths, options, params, sinks=[Stopping(stop_after)])
        return read_run(paths)

    return train_and_read


def plain(value):
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value


def val_loss(model):
    data = load_dataset(FAKE, data_root=None, seed=0).validation
    images, labels = data.__getitems__(range(16))
    rest_images, rest_labels = data.__getitems__(range(16, 20))
    with torch.no_grad():
        first = torch.nn.functional.cross_entropy(model(images), labels)
        rest = torch.nn.functional.cross_entropy(model(rest_images), rest_labels)
    return float((first.double() * 16 + rest.double() * 4) / 20)


def best_epoch(run):
    return min(run.epochs, key=lambda each: each.val_loss)


@pytest.mark.parametrize("model", [MlpOptions(hidden=[5]), LogisticOptions(), CUSTOM], ids=["mlp", "logistic", "own"])
def test_a_loaded_model_has_the_validation_loss_of_its_run(train, model):
    run = train(model=model)
    trust = model is CUSTOM
    last, best = load_model(run, trust=trust), load_model(run, best=True, trust=trust)
    assert val_loss(last) == pytest.approx(run.epochs[-1].val_loss, abs=1e-9)
    assert val_loss(best) == pytest.approx(best_epoch(run).val_loss, abs=1e-9)
    for loaded, state in ((last, read_state(run.paths.checkpoint)), (best, read_state(run.paths.best))):
        assert not loaded.training
        weights = loaded.state_dict()
        assert weights.keys() == state["model"].keys()
        assert all(torch.equal(weights[name], state["model"][name]) for name in weights)


def test_predictions_equal_those_of_the_trained_network_bit_for_bit(train):
    networks = []

    def keep(sink, start):
        networks.append(start.network)
        return ()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stopping, "begin", keep)
        run = train(model=CUSTOM)
    images = torch.rand(7, 1, 6, 6)
    with torch.no_grad():
        assert torch.equal(load_model(run, trust=True)(images), networks[0].eval()(images))


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5])
def test_the_best_weights_are_kept_across_an_interruption(train, stop_after):
    whole = train("whole")
    stopped = train("broken", stop_after=stop_after)
    assert stopped.record.status == "killed"
    resumed = train("broken")
    assert best_epoch(resumed).epoch == best_epoch(whole).epoch
    one, other = read_state(whole.paths.best), read_state(resumed.paths.best)
    assert one["best"]["record"]["epoch"] == other["best"]["record"]["epoch"] == best_epoch(whole).epoch
    assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])


@pytest.mark.parametrize(
    "model",
    [
        {"_target_": "torch.nn.Linear", "in_features": 10**7, "out_features": 10**7},
        {"_target_": "torch.nn.Linear", "in_features": "x", "out_features": 2},
        {"_target_": "torch.nn.MultiheadAttention", "embed_dim": 4, "num_heads": 0},
        {"_target_": "torch.nn." + "a" * 10**5},
        {"name": "mlp", "hidden": [10**15]},
        {"name": "mlp", "wings": 2},
        {"name": ["mlp"]},
    ],
    ids=lambda model: str(model)[:60],
)
def test_settings_that_make_no_model_are_reported_in_one_line(train, model):
    run = train()
    run = dataclasses.replace(run, record=msgspec.structs.replace(run.record, config={"model": model}))
    with pytest.raises(UsageError) as refused:
        load_model(run)
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 2000


def test_best_weights_are_restored_after_a_kill_between_the_two_files(train):
    epoch = best_epoch(train("whole")).epoch
    stopped = train("broken", stop_after=epoch)
    expected = read_state(stopped.paths.best)["model"]
    stopped.paths.best.write_bytes(b"the one before")
    resumed = train("broken")
    assert best_epoch(resumed).epoch == epoch
    assert all(torch.equal(read_state(resumed.paths.best)["model"][name], expected[name]) for name in expected)


def test_the_best_epoch_is_saved_for_any_interval(train):
    run = train(every=4, stop_after=best_epoch(train("whole")).epoch)
    assert read_state(run.paths.checkpoint)["progress"]["record"]["epoch"] == run.epochs[-1].epoch
    assert read_state(run.paths.best)["best"]["metric"] == "val_loss"


def test_without_keep_best_no_best_file_is_written(train):
    run = train(keep_best=None)
    assert not run.paths.best.exists()
    with pytest.raises(UsageError, match=r"must have a best\.pt, got none; .*checkpoint\.keep_best=val_loss"):
        load_model(run, best=True)


def test_higher_is_better_for_accuracies(train):
    run = train(keep_best="accuracy")
    assert read_state(run.paths.best)["best"]["value"] == max(each.accuracy for each in run.epochs)


def test_runs_are_found_by_folder_and_by_the_beginning_of_their_name(train):
    first = train()
    expected = first.record.name
    train("lr=0.5,more-4567abcd")
    for name in (f"outputs/sweep/runs/{expected}", f"outputs/sweep/{expected}", "sweep/lr=0.5", "sweep/0123"):
        loaded = runmanager.load_model(name)
        assert torch.equal(loaded.state_dict()["1.weight"], load_model(first).state_dict()["1.weight"])
    with pytest.raises(UsageError, match=r"must name one run, got 2: lr=0\.5"):
        load_model("sweep/lr")
    with pytest.raises(UsageError, match="must be a run of outputs/sweep, got none of: lr"):
        load_model("sweep/x")
    with pytest.raises(UsageError, match="must be a run's folder or SWEEP/RUN, got nothing there"):
        load_model("nothing/x")


def _with_model(run, model):
    return dataclasses.replace(
        run, record=msgspec.structs.replace(run.record, config={**run.record.config, "model": model})
    )


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ({"_target_": "subprocess.Popen", "args": ["touch", "ran"]}, "subprocess.Popen as model._target_"),
        ({"_target_": "evil.Net"}, "evil.Net as model._target_"),
        ({"_target_": "torch.nnevil.Net"}, "torch.nnevil.Net as"),
        ({"_target_": "torch.nn"}, "torch.nn as"),
        ({"_target_": "torch.nn.."}, "torch.nn.. as"),
        ({"_target_": ["subprocess", "Popen"]}, r"\['subprocess', 'Popen'\] as"),
        ({"_target_": "\x1b[2J"}, r"'\\x1b\[2J' as"),
        (
            {"_target_": "runmanager.tracking.environment.program_code.subprocess.Popen", "args": ["touch", "ran"]},
            r"as model._target_ \(the module subprocess\)",
        ),
        ({"_target_": "torch.nn.modules.module.torch.fx.GraphModule"}, r"\(the module torch\)"),
        ({"_target_": "torch.nn.functional.relu"}, r"relu as model\._target_ \(a function\)"),
        ({"_target_": "torchvision.models.resnet18"}, r"resnet18 as model\._target_ \(a function\)"),
        ({"_target_": "torch.nn.Parameter"}, r"\(the class torch\.nn\.parameter\.Parameter\)"),
        ({"_target_": "torch.nn.Module.__class__"}, r"\(the class builtins\.type\)"),
        ({"_target_": "runmanager.app.subprocess_main.Net"}, "has no attribute '(app|subprocess_main)'"),
        ({"_target_": "torch.nn.Nothing"}, "No module named 'torch.nn.Nothing'"),
        ({"_target_": "torch.nn.Sequential", "a": {"b": [{"_target_": "evil.Net"}]}}, r"evil.Net as model\.a\.b\[0\]"),
        (
            {"name": "mlp", "hidden": [5], "x": [[{"_target_": "evil.Net"}]]},
            r"evil.Net as model\.x\[0\]\[0\]\._target_",
        ),
    ],
    ids=lambda each: None if isinstance(each, dict) else str(each).split(" ")[0],
)
def test_a_stored_target_is_data(train, own_module, tmp_path, model, named):
    run = _with_model(train(), {"name": "custom", **model})
    own_module("evil", "import pathlib\npathlib.Path('ran').touch()\n")
    path = list(sys.path)
    with pytest.raises(
        UsageError, match=rf"must name a class of torch\.nn\.Module .*got .*{named}.*trust=True"
    ) as refused:
        load_model(run)
    assert "\n" not in str(refused.value)
    assert "evil" not in sys.modules
    assert not list(tmp_path.rglob("ran"))
    assert sys.path == path


@pytest.mark.parametrize("target", ["torch.nn.Identity", "runmanager.training.models.builtin_models.Resized"])
def test_a_stored_network_of_a_known_package_needs_no_trust(train, target):
    run = _with_model(train(), {"name": "custom", "_target_": target, "network": None, "side": 3})
    with pytest.raises(UsageError, match="must fit its model, got another one"):  # it was built
        load_model(run)


def test_a_custom_model_needs_trust(train):
    run = train(model=CUSTOM)
    with pytest.raises(UsageError, match=r"got own\.Net as model\._target_; .*load_model\(…, trust=True\)"):
        load_model(run)
    assert load_model(run, trust=True).layers[1].out_features == 6


def test_code_in_a_checkpoint_is_not_run(train, tmp_path):
    run = train()
    for path in (run.paths.checkpoint, run.paths.best):
        torch.save(Touching(tmp_path / "ran"), path)
    for best in (False, True):
        with pytest.raises(RecordError, match="is damaged"):
            load_model(run, best=best, trust=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "changes", [{"num_classes": 10**13}, {"in_shape": [10**6, 10**6, 10]}, {"num_classes": 4}], ids=str
)
def test_numbers_in_a_checkpoint_take_no_memory(train, changes):
    run = train()
    state = read_state(run.paths.checkpoint)
    torch.save(state | changes, run.paths.checkpoint)
    with pytest.raises(UsageError, match=r"must (fit its model|have settings that make its model), got") as error:
        load_model(run)
    assert "\n" not in str(error.value) and "allocate" not in str(error.value)


class Touching:
    """Creates a file when its pickle is loaded."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return self._path.touch, ()


def test_random_states_are_unchanged(train):
    run = train()
    torch.manual_seed(3)
    random.seed(3)
    load_model(run)
    drawn = float(torch.rand(())), random.random()
    torch.manual_seed(3)
    random.seed(3)
    assert (float(torch.rand(())), random.random()) == drawn


def test_a_run_of_a_custom_loop_is_refused(tmp_path):
    manager = RunManager(tmp_path / "mine", sinks=[MemorySink()])
    network = torch.nn.Linear(2, 2)
    with manager.run({"lr": 1}, network, [(torch.rand(3, 2), torch.tensor([0, 1, 0]))]) as run:
        for epoch in run.epochs(1):
            epoch.track(0.5, samples=3)
    with pytest.raises(UsageError, match="must be one of the built-in job"):
        load_model(run.paths.root)


def test_a_run_without_a_checkpoint_is_refused(train):
    run = train(every=0, keep_best=None)
    with pytest.raises(UsageError, match=r"\(finished\) must have a checkpoint\.pt, got none"):
        load_model(run)


def test_damaged_and_older_files_are_reported(train):
    run = train()
    state = read_state(run.paths.checkpoint)
    del state["in_shape"]
    torch.save(state, run.paths.checkpoint)
    with pytest.raises(RecordError, match="must contain the sample shape and number of classes"):
        load_model(run)
    run.paths.checkpoint.write_bytes(b"x")
    with pytest.raises(RecordError, match="is damaged"):
        load_model(run)


def test_a_changed_model_is_reported(train, own_module, tmp_path):
    run = train(model=CUSTOM)
    changed = dataclasses.replace(run, record=_with_width(run.record, 7))
    with pytest.raises(UsageError, match="must fit its model, got another one"):
        load_model(changed, trust=True)


def _with_width(record, width):
    return msgspec.structs.replace(record, config={**record.config, "model": {**CUSTOM, "width": width}})


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        (CheckpointOptions(keep_best="val_los"), "`checkpoint.keep_best` must be one of loss, accuracy, val_loss"),
        (CheckpointOptions(every=0, keep_best="loss"), "`checkpoint.every` must be at least 1 with"),
    ],
)
def test_invalid_checkpoint_settings_are_faults(checkpoint, message):
    (line,) = TrainingOptions(checkpoint=checkpoint).faults()
    assert line.startswith(message)
