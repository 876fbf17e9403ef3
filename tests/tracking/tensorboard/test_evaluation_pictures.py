"""Pictures of evaluations, read back from the event file."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader

from runmanager import RunManager
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.tracking.epoch_metrics.evaluation import Evaluation
from runmanager.tracking.epoch_metrics.prediction_task import PredictionFormat
from runmanager.tracking.options import TensorBoardOptions
from runmanager.tracking.sinks import EpochDetails, RunStart
from runmanager.tracking.tensorboard.evaluation_pictures import (
    BLACK,
    VERMILION,
    WHITE,
    EvaluationPictures,
    as_png,
    format_percent,
)
from runmanager.tracking.tensorboard.sink import TensorBoardSink

from ..conftest import Body, images, stored_runs

CLASSES = 3
TAGS = ["predictions", "confusion_matrix"]
LEFT, TOP, IMAGE, TILE = 8, 46, 106, (114, 144)  # position and side of the first image, distance to the next ones
CELL = 24


class Scripted(torch.nn.Module):
    """Predicts the class encoded in the image's corner: the true one, or another one for every fifth image."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(3.0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.scale * F.one_hot((inputs[:, 0, 0, 0] * 10).round().long(), CLASSES)


def scripted(count: int, every: int = 5) -> torch.utils.data.TensorDataset:
    pictures, labels = images(count).tensors
    predicted = torch.where(torch.arange(count) % every == 0, (labels + 1) % CLASSES, labels)
    pictures[:, 0, 0, 0] = predicted / 10
    dataset = torch.utils.data.TensorDataset(pictures, labels)
    dataset.classes = ["cat", "dog", "elephant"]
    return dataset


def read_pictures(paths: RunPaths) -> dict[str, list[tuple[int, Image.Image]]]:
    accumulator = EventAccumulator(str(paths.root), size_guidance={"images": 0}).Reload()
    tags = [tag for tag in accumulator.Tags()["images"] if tag != "images"]
    return {
        tag: [
            (event.step, Image.open(io.BytesIO(event.encoded_image_string)).convert("RGB"))
            for event in accumulator.Images(tag)
        ]
        for tag in tags
    }


def run_once(folder: Path, train: Body, validation: Any, **options: bool) -> RunRecord:
    manager = RunManager(folder, console=False, tensorboard=TensorBoardOptions(**options))
    network = Scripted()
    with manager.run({"lr": 1}, network, DataLoader(scripted(20), batch_size=10)) as run:
        train(run, network, DataLoader(scripted(20), batch_size=10), epochs=3, lr=0.0, validation=validation)
    return run.record


def colours(picture: Image.Image) -> Counter[tuple[int, ...]]:
    return Counter(map(tuple, np.asarray(picture).reshape(-1, 3).tolist()))


def test_the_last_evaluation_is_drawn_once(tmp_path: Path, train: Body) -> None:
    record = run_once(tmp_path / "sweep", train, DataLoader(scripted(40), batch_size=16))
    assert record.notes == ()
    (stored,) = stored_runs(tmp_path / "sweep")
    found = read_pictures(stored.paths)
    assert sorted(found) == sorted(TAGS)
    for tag in TAGS:
        ((step, picture),) = found[tag]
        assert step == 3 and picture.width == 350 and 150 < picture.height < 1000, tag
        assert colours(picture)[WHITE] > 1000 and colours(picture)[BLACK] > 20
    ((_, grid),) = found["predictions"]
    # Eight of fifteen are wrong, every fifth of forty: a frame of four pixels and a badge each, with a white cross.
    frame = 4 * (IMAGE - 4) * 4
    assert 8 * frame < colours(grid)[VERMILION] < 8 * (frame + 19 * 19)
    badge = np.asarray(grid)[
        TOP + 1 : TOP + 18, LEFT + IMAGE - 18 : LEFT + IMAGE - 1
    ]  # of the first sample, a wrong prediction
    assert (badge == VERMILION).all(axis=2).any() and (badge == WHITE).all(axis=2).sum() > 30
    last = np.asarray(grid)[TOP + 4 * TILE[1] :, LEFT + 2 * TILE[0] :]  # a right prediction
    assert not (last == VERMILION).all(axis=2).any() and (last == BLACK).all(axis=2).any()


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_an_evaluation_without_class_scores_has_notes_in_place_of_pictures(tmp_path: Path, task: Any) -> None:
    preds, labels = torch.ones(4, 3), torch.tensor([[1, 0, -100]] * 4)
    if task == "multiclass":
        preds = torch.ones(4, 3, 5)  # (batch, time, classes)
    with RunManager(tmp_path / "sweep", console=False).run({"lr": 1}, Scripted()) as run:
        for epoch in run.epochs(3):
            for track in (epoch.track, epoch.track_eval):
                track(0.5, preds, labels, task=task, class_dim=-1 if task == "multiclass" else None)
    (stored,) = stored_runs(tmp_path / "sweep")
    assert stored.record.status is Status.FINISHED
    for record in stored.epochs:
        assert (record.samples, record.loss) == (4, 0.5)
        assert record.accuracy == record.val_accuracy == 1 / 2  # one of three labels does not count
    assert [note for note in stored.record.notes if "not scores (batch, classes)" in note] == [
        f"no {tag}: the evaluation's predictions are not scores (batch, classes)" for tag in TAGS
    ]
    assert read_pictures(stored.paths) == {}


def test_pictures_are_flushed_before_the_status_becomes_finished(
    tmp_path: Path, train: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may be killed before the sink closes the file; small pictures would stay in its buffer."""
    seen: list[tuple[Status, list[str]]] = []
    end = TensorBoardSink.end

    def check_before(sink: TensorBoardSink, record: RunRecord) -> None:
        (stored,) = stored_runs(tmp_path / "sweep")
        seen.append((stored.record.status, sorted(read_pictures(stored.paths))))
        end(sink, record)

    monkeypatch.setattr(TensorBoardSink, "end", check_before)
    small = "runmanager.tracking.tensorboard.evaluation_pictures.as_png"
    monkeypatch.setattr(small, lambda picture: as_png(picture.resize((1, 1))))
    run_once(tmp_path / "sweep", train, DataLoader(scripted(40), batch_size=16))
    assert seen == [(Status.FINISHED, sorted(TAGS))]


def test_the_matrix_is_dark_where_samples_are(tmp_path: Path, train: Body) -> None:
    run_once(tmp_path / "sweep", train, DataLoader(scripted(40), batch_size=16), predictions=False)
    (stored,) = stored_runs(tmp_path / "sweep")
    found = read_pictures(stored.paths)
    assert list(found) == ["confusion_matrix"]
    ((_, picture),) = found["confusion_matrix"]
    pixels = np.asarray(picture.convert("L")).astype(int)
    right = max(column for column in range(pixels.shape[1]) if (pixels[-44:-12, column] < 150).sum() > 20)
    cells = pixels[-12 - 3 * CELL : -12, right - 3 * CELL : right].reshape(3, CELL, 3, CELL).transpose(0, 2, 1, 3)
    shades = np.median(cells.reshape(3, 3, -1), axis=2)
    validation = scripted(40)
    labels = validation.tensors[1]
    predicted = (validation.tensors[0][:, 0, 0, 0] * 10).round().long()
    for true in range(CLASSES):
        shares = [float(((labels == true) & (predicted == other)).sum() / (labels == true).sum()) for other in range(3)]
        assert list(np.argsort(-shades[true], kind="stable")) == list(np.argsort(shares, kind="stable"))
        assert (shades[true] == 255).tolist() == [share == 0 for share in shares]


def test_a_run_that_failed_or_had_no_evaluation_has_no_pictures(tmp_path: Path, train: Body) -> None:
    run_once(tmp_path / "sweep", train, None)
    network = Scripted()
    validation = DataLoader(scripted(10), batch_size=10)
    with (
        pytest.raises(ValueError, match="no"),
        RunManager(tmp_path / "sweep", console=False).run({"lr": 2}, network, validation) as run,
    ):
        train(run, network, validation, epochs=1, lr=0.0, validation=validation)
        raise ValueError("no")
    assert [read_pictures(stored.paths) for stored in stored_runs(tmp_path / "sweep")] == [{}, {}]


class Changing(torch.utils.data.TensorDataset):
    """Gives other labels from the second epoch on."""

    num_given = 0

    def __getitem__(self, index: int) -> Any:
        inputs, label = super().__getitem__(index)
        self.num_given += 1
        return inputs, label if self.num_given <= len(self) else (label + 1) % CLASSES


@pytest.mark.parametrize(
    ("validation", "note"),
    [
        (
            DataLoader(scripted(40), batch_size=16, shuffle=True),
            "the evaluation's loader shuffles, or its samples cannot be read again",
        ),
        (
            DataLoader(Changing(*scripted(40).tensors), batch_size=16),
            "the evaluation's loader gives other samples when it is read again",
        ),
    ],
    ids=["shuffled", "changing"],
)
def test_samples_that_cannot_be_read_again_are_a_note(tmp_path: Path, train: Body, validation: Any, note: str) -> None:
    record = run_once(tmp_path / "sweep", train, validation)
    assert record.status == "finished" and record.notes == (f"no predictions: {note}",)
    (stored,) = stored_runs(tmp_path / "sweep")
    assert list(read_pictures(stored.paths)) == ["confusion_matrix"]


def evaluated(classes: int, loader: Any = None) -> Evaluation:
    evaluation = Evaluation()
    if loader is not None:
        evaluation.add_loader(loader)
    evaluation.add(torch.eye(classes), torch.arange(classes), PredictionFormat(1, None))
    return evaluation


def epoch(number: int, seconds: float) -> EpochRecord:
    return EpochRecord(epoch=number, epoch_seconds=seconds, eval_seconds=1.0)


def test_a_picture_that_is_impossible_is_noted_once() -> None:
    points = [(torch.rand(101, 4), torch.arange(101))]
    pictures = EvaluationPictures(TensorBoardOptions())
    summary, notes = pictures.epoch(epoch(1, 100.0), evaluated(101, points))
    assert not summary.value and list(notes) == [
        "no predictions: the evaluated samples are not images (channels, height, width)",
        "no confusion_matrix: 101 classes are more than the 100 that a picture has room for",
    ]
    assert not pictures.epoch(epoch(2, 100.0), evaluated(101, points))[1]
    assert not pictures.last(epoch(3, 1.0), evaluated(101, points))[0].value
    _, notes = EvaluationPictures(TensorBoardOptions(predictions=False)).epoch(epoch(1, 1.0), Evaluation())
    assert list(notes) == ["no confusion_matrix: the evaluation's predictions are not scores (batch, classes)"]


def test_long_epochs_are_drawn_at_powers_of_two_and_the_last_one_at_the_end() -> None:
    pictures = EvaluationPictures(TensorBoardOptions(predictions=False))
    when = [number for number in range(10) if pictures.epoch(epoch(number, 20.0), evaluated(3))[0].value]
    assert when == [1, 2, 4, 8]
    summary, _ = pictures.last(epoch(9, 20.0), evaluated(3))
    assert [value.tag for value in summary.value] == ["confusion_matrix"]
    assert not pictures.last(epoch(8, 20.0), evaluated(3))[0].value  # it is drawn already
    assert not any(pictures.epoch(epoch(number, 8.0), evaluated(3))[0].value for number in (1, 2, 3, 4))
    assert pictures.last(epoch(4, 8.0), evaluated(3))[0].value


def test_up_to_a_hundred_classes_have_a_matrix() -> None:
    sizes = {}
    for classes in (2, 20, 21, 100):
        pictures = EvaluationPictures(TensorBoardOptions(predictions=False))
        (value,) = pictures.last(epoch(1, 1.0), evaluated(classes))[0].value
        sizes[classes] = (value.image.width, value.image.height)
    assert all(300 <= width < 1500 and height < 1500 for width, height in sizes.values())


def test_a_picture_that_fails_at_the_end_is_a_note(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    record = RunRecord(name="a", signature="b" * 64, status=Status.RUNNING, config={})
    network, loader = Scripted(), list(DataLoader(scripted(CLASSES), batch_size=CLASSES))
    loader[0][1].copy_(torch.arange(CLASSES))
    sink = TensorBoardSink(TensorBoardOptions(graph=False, images=False))
    assert not sink.begin(RunStart(record, paths, network, torch.device("cpu")))
    evaluation = evaluated(CLASSES, loader)
    assert not sink.epoch(epoch(1, 1.0), EpochDetails(network, evaluation=evaluation))
    loader.clear()  # the data are gone
    (note,) = sink.finish(epoch(1, 1.0), evaluation)
    assert note == "no predictions of epoch 1: the evaluation's loader shuffles, or its samples cannot be read again"
    sink.end(msgspec.structs.replace(record, status=Status.FINISHED))
    assert list(read_pictures(paths)) == ["confusion_matrix"]


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0"), (0.001, "<1"), (0.005, "<1"), (0.014, "1"), (0.5, "50"), (0.99, "99"), (0.994, ">99"), (1.0, "100")],
)
def test_only_exact_shares_are_formatted_as_0_or_100(share: float, text: str) -> None:
    assert format_percent(share) == text
