"""Event files as read by two independent readers, tbparse and TensorBoard."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tbparse import SummaryReader
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.hparams.api_pb2 import Status as SessionStatus
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch.utils.data import DataLoader

import runmanager.tracking.tensorboard.sink as module
from runmanager import RunManager
from runmanager.records.storage.reader import StoredRun
from runmanager.tracking.options import RunOptions, TensorBoardOptions

from ..conftest import Body, Stateful, event_files, images, stored_runs

SETTINGS = {
    "lr": 0.05,
    "batch_size": 20,
    "device": "cpu",
    "shuffle": True,
    "model": {"name": "noticing", "width": None},
}
SCALARS = {
    *("train/loss", "train/accuracy", "val/loss", "val/accuracy", "throughput/samples_per_second", "optim/lr"),
    *("metrics/f1", "val/iou", "metrics/val/loss", "throughput/tokens_per_second"),
    *(f"time/{part}_seconds" for part in ("epoch", "data", "transfer", "compute", "eval")),
}
LOGGED = {"f1": 0.5, "val/iou": 0.25, "val/loss": 7.0, "bad": float("inf")}
PARAMETERS = {"0.weight", "0.bias", "1.weight", "1.bias", "5.weight", "5.bias"}


def one_run(folder: Path, train: Body, *, settings: dict[str, Any], **options: bool) -> StoredRun:
    torch.manual_seed(0)
    network = Stateful()
    loader = DataLoader(images(100), batch_size=20, shuffle=True)
    manager = RunManager(folder, console=False, tensorboard=TensorBoardOptions(**options))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.25)
    with manager.run(settings, network, loader, optimizer=optimizer, options=RunOptions(log_every=2)) as run:
        validation = DataLoader(images(30, seed=1), batch_size=20)
        train(run, network, loader, validation=validation, units={"tokens": 7}, logged=LOGGED)
    return stored_runs(folder)[-1]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, train: Body) -> StoredRun:
    """A run of two epochs with every kind of summary."""
    folder = tmp_path_factory.mktemp("everything") / "sweep"
    return one_run(folder, train, settings=SETTINGS, histograms=True)


def accumulate(run: StoredRun) -> EventAccumulator:
    accumulator = EventAccumulator(
        str(run.paths.root), size_guidance=dict.fromkeys(("images", "scalars", "tensors", "histograms"), 0)
    )
    return accumulator.Reload()


def events(path: Path) -> Iterator[Event]:
    for raw in RawEventFileLoader(str(path)).Load():
        yield Event.FromString(raw)


def summaries(run: StoredRun) -> Iterator[tuple[int, Any]]:
    (path,) = event_files(run.paths)
    for event in events(path):
        for value in event.summary.value:
            yield event.step, value


# tbparse uses a deprecated argument of pandas.
by_tbparse = pytest.mark.filterwarnings("ignore:The inplace keyword")


@by_tbparse
def test_tbparse_reads_every_scalar_at_its_epoch(stored: StoredRun) -> None:
    reader = SummaryReader(str(stored.paths.root))
    scalars = reader.scalars
    assert set(scalars["tag"]) == SCALARS | {"step/loss"}
    for tag in SCALARS:
        assert list(scalars[scalars["tag"] == tag]["step"]) == [1, 2], tag
    steps = scalars[scalars["tag"] == "step/loss"]
    assert list(steps["step"]) == [2, 4, 6, 8, 10]
    values = scalars.set_index(["tag", "step"])["value"]
    for epoch in stored.epochs:
        read = {tag: values[tag, epoch.epoch] for tag in SCALARS}
        assert read["train/loss"] == pytest.approx(epoch.loss) and read["val/accuracy"] == pytest.approx(
            epoch.val_accuracy
        )
        assert read["time/epoch_seconds"] == pytest.approx(epoch.epoch_seconds)
        assert read["throughput/samples_per_second"] == pytest.approx(epoch.samples_per_second)
        assert read["optim/lr"] == 0.25
        assert (read["metrics/f1"], read["val/iou"], read["metrics/val/loss"]) == (0.5, 0.25, 7.0)
        assert epoch.epoch_seconds and read["throughput/tokens_per_second"] == pytest.approx(35 / epoch.epoch_seconds)


@by_tbparse
def test_tbparse_reads_the_settings_and_the_text(stored: StoredRun) -> None:
    reader = SummaryReader(str(stored.paths.root))
    hparams = dict(zip(reader.hparams["tag"], reader.hparams["value"], strict=True))
    assert hparams["lr"] == 0.05 and hparams["batch_size"] == 20 and hparams["device"] == "cpu"
    assert hparams["model.name"] == "noticing" and hparams["shuffle"] is True
    assert "model.width" not in hparams  # None is neither a number nor text
    (text,) = reader.text["value"]
    assert "| lr | 0.05 |" in text and "| model.name | noticing |" in text


def test_tensorboards_own_reader_finds_the_rest(stored: StoredRun) -> None:
    accumulator = accumulate(stored)
    tags = accumulator.Tags()
    assert set(tags["scalars"]) == SCALARS | {"step/loss"}
    assert tags["graph"] and accumulator.Graph().node
    assert sorted(tags["images"]) == ["confusion_matrix", "images", "predictions"]
    (image,) = accumulator.Images("images")
    assert image.step == 0 and image.width * image.height >= 20 * 8 * 8  # the first batch's 20 images, 8x8 each
    assert set(tags["histograms"]) == {f"{kind}/{name}" for kind in ("weights", "gradients") for name in PARAMETERS}
    assert [event.step for event in accumulator.Histograms("weights/0.weight")] == [1, 2]


def test_the_tags_in_the_modules_table_are_those_written(stored: StoredRun) -> None:
    rows = re.findall(r"^\| (.+?) \| \w+ \|", module.__doc__ or "", flags=re.MULTILINE)
    documented = {tag for row in rows for tag in re.findall(r"`([^`]+)`", row)}
    written = {value.tag for _, value in summaries(stored)}
    families = {re.sub(r"^(weights|gradients)/.*", r"\1/<parameter>", tag) for tag in written}
    logged = {"metrics/f1": "metrics/<name>", "metrics/val/loss": "metrics/<name>", "val/iou": "<name>"}
    logged["throughput/tokens_per_second"] = "throughput/<unit>_per_second"
    by_steps = {"step/<name>"}  # of `run.log`, see test_run_values.py
    assert {logged.get(tag, tag) for tag in families} | by_steps == documented


def test_scalars_are_classic_and_in_one_file(stored: StoredRun) -> None:
    assert len(event_files(stored.paths)) == 1
    scalars = [value for _, value in summaries(stored) if value.tag in SCALARS]
    assert len(scalars) == 2 * len(SCALARS)
    assert all(value.WhichOneof("value") == "simple_value" for value in scalars)
    (image,) = [value for _, value in summaries(stored) if value.tag == "images"]
    assert image.WhichOneof("value") == "image"
    (path,) = event_files(stored.paths)
    assert next(events(path)).file_version == "brain.Event:2"


_HPARAMS = ("experiment", "session_start_info", "session_end_info")


def session(run: StoredRun) -> tuple[list[HParamsPluginData], list[HParamsPluginData]]:
    found: dict[str, list[HParamsPluginData]] = {name: [] for name in _HPARAMS}
    for _, value in summaries(run):
        if value.tag.startswith("_hparams_/"):
            data = HParamsPluginData.FromString(value.metadata.plugin_data.content)
            found[value.tag.removeprefix("_hparams_/")].append(data)
    assert not found["experiment"], "with an experiment declared, TensorBoard would show one run's settings only"
    return found["session_start_info"], found["session_end_info"]


def test_the_hparams_session_starts_once_and_ends_once(stored: StoredRun) -> None:
    starts, ends = session(stored)
    assert len(starts) == 1 and starts[0].session_start_info.hparams["lr"].number_value == 0.05
    assert [end.session_end_info.status for end in ends] == [SessionStatus.Value("STATUS_SUCCESS")]


def test_a_failed_run_ends_its_session_as_a_failure(tmp_path: Path, network: torch.nn.Module, loader: Any) -> None:
    with (
        pytest.raises(ValueError, match="no"),
        RunManager(tmp_path / "sweep", console=False).run({"lr": 1}, network, loader),
    ):
        raise ValueError("no")
    (run,) = stored_runs(tmp_path / "sweep")
    assert [end.session_end_info.status for end in session(run)[1]] == [SessionStatus.Value("STATUS_FAILURE")]


def test_the_image_grid_has_at_most_64_images(
    tmp_path: Path, network: torch.nn.Module, train: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    original = module.protos.image
    monkeypatch.setattr(
        module.protos, "image", lambda tag, tensor, **o: counts.append(len(tensor)) or original(tag, tensor, **o)
    )
    loader = DataLoader(images(200), batch_size=200)
    with RunManager(tmp_path / "sweep", console=False).run({}, network, loader) as run:
        train(run, network, iter(loader), epochs=1)
    one_shot = iter(loader)  # cannot be peeked into: its first training batch is used
    with RunManager(tmp_path / "sweep", console=False).run({"a": 1}, network, one_shot) as run:
        train(run, network, one_shot, epochs=1)
    assert counts == [64, 64]


PARTS = ("images", "graph", "histograms", "predictions", "confusion_matrix")


@pytest.mark.parametrize("part", PARTS)
def test_parts_can_be_left_out(tmp_path: Path, train: Body, part: str) -> None:
    chosen = {name: name == part for name in PARTS}
    run = one_run(tmp_path / "sweep", train, settings={"lr": 1}, **chosen)
    tags = accumulate(run).Tags()
    others = {name for name in ("graph", "histograms") if tags[name]}
    assert {*tags["images"], *others} == {part}
    assert run.record.notes == ()


def test_nothing_is_written_if_disabled(tmp_path: Path, train: Body) -> None:
    run = one_run(tmp_path / "sweep", train, settings={"lr": 1}, enabled=False)
    assert event_files(run.paths) == []


def test_a_part_that_cannot_be_written_is_a_note(tmp_path: Path, train: Body) -> None:
    class Refusing(torch.nn.Module):
        """Raises if gradients are disabled."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if not torch.is_grad_enabled():
                raise NotImplementedError("requires gradients\nand more")
            return self.layer(inputs)

    network = Refusing()
    points = torch.utils.data.TensorDataset(torch.rand(10, 8), torch.zeros(10, dtype=torch.int64))
    loader = DataLoader(points, batch_size=5)
    options = TensorBoardOptions(histograms=True)
    with RunManager(tmp_path / "sweep", console=False, tensorboard=options).run({}, network, loader) as run:
        network.layer.bias.requires_grad_(False)
        train(run, network, loader)
    assert run.record.status == "finished"
    assert run.record.notes == ("no graph: the model could not be followed (NotImplementedError: requires gradients)",)
    (stored,) = stored_runs(tmp_path / "sweep")
    assert set(accumulate(stored).Tags()["histograms"]) == {
        "weights/layer.weight",
        "weights/layer.bias",
        "gradients/layer.weight",
    }


def test_nan_in_weights_is_a_note(tmp_path: Path, network: Any, loader: Any, train: Body) -> None:
    options = TensorBoardOptions(histograms=True)
    with RunManager(tmp_path / "sweep", console=False, tensorboard=options).run({}, network, loader) as run:
        train(run, network, loader, epochs=1, lr=float("nan"))
    assert run.record.status == "finished" or run.record.reason == "diverged"
    assert "no histogram of weights/0.weight in epoch 1: it holds NaN or infinity" in run.record.notes
