"""Real commands with other losses and metrics; their numbers are computed again from the weights they leave."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runmanager.records.storage.reader import read_epochs
from runmanager.training.load_model import load_model

# The data is made from a fixed seed, so that a test can make it again.
OWN = '''
import torch
from torch.utils.data import Dataset, TensorDataset

def numbers(count, classes, part):
    return torch.Generator().manual_seed(100 * count + 10 * classes + part)

def lines(train):
    """Points and a number for each, float64: regression."""
    draw = torch.Generator().manual_seed(int(train))
    points = torch.rand(96 if train else 40, 3, generator=draw)
    return TensorDataset(points, (points @ torch.tensor([1.0, -2.0, 0.5])).double())

def tags(train):
    """Points and four answers for each: multi-label."""
    draw = torch.Generator().manual_seed(int(train) + 10)
    points = torch.rand(96 if train else 40, 3, generator=draw)
    return TensorDataset(points, points @ torch.rand(3, 4, generator=torch.Generator().manual_seed(0)) > 0.7)

class Masks(Dataset):
    """Images read one by one, and a class for each pixel, some of them unknown (255): segmentation."""

    def __init__(self, train):
        draw = torch.Generator().manual_seed(int(train) + 20)
        self.images = torch.rand(24 if train else 10, 1, 6, 6, generator=draw)
        self.masks = (3 * self.images[:, 0]).long().clamp(max=2)
        self.masks[torch.rand(self.masks.shape, generator=draw) < 0.2] = 255

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.masks[index]

class Pixels(torch.nn.Module):
    def __init__(self, in_shape, num_classes):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(in_shape[0], 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, num_classes, 1)
        )

    def forward(self, images):
        return self.layers(images)

class Dice(torch.nn.Module):
    """One minus the overlap of labels, over the whole batch: not the mean of its pieces' losses."""

    def __init__(self, smooth=1.0):
        super().__init__()
        self.smooth = smooth

    def forward(self, preds, labels):
        probabilities = preds.sigmoid()
        overlap = (probabilities * labels).sum()
        return 1 - (2 * overlap + self.smooth) / (probabilities.sum() + labels.sum() + self.smooth)

class Largest:
    """A metric that is not one of torchmetrics, which gives two numbers."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.seen = torch.tensor(-1e9)

    def update(self, preds, labels):
        self.seen = torch.maximum(self.seen, preds.max())

    def compute(self):
        return {"value": self.seen, "double": 2 * self.seen}
'''

QUICK = ("device=cpu", "tensorboard.graph=false", "checkpoint.every=1")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `tasks` in the folder in which the commands run, imported here too."""
    (tmp_path / "tasks.py").write_text(OWN)
    names: dict[str, Any] = {"__name__": "tasks_here"}
    exec(OWN, names)
    monkeypatch.chdir(tmp_path)
    return names


def batches(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def mean_of_batches(loss: Callable[[slice], Tensor], count: int, size: int) -> float:
    """The mean over samples of the mean losses of batches."""
    return sum(loss(part).item() * (part.stop - part.start) for part in batches(count, size)) / count


@pytest.mark.parametrize("loader", ["dataloader", "resident"])
def test_regression_gives_the_errors_of_its_best_weights(
    command: Callable[..., Any], sweep: Callable[[str], Any], own: Any, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("dataset=custom", "dataset._target_=tasks.lines", "model=mlp", "loss=huber", "+loss.delta=0.5", "lr=0.05")
    metrics = ("metrics.mae._target_=torchmetrics.MeanAbsoluteError", "metrics.r2._target_=torchmetrics.R2Score")
    sizes = ("batch_size=20", "eval_batch_size=16", "epochs=4", f"loader={loader}", "micro_batch=7")
    stops = ("checkpoint.keep_best=val_mae", "early_stop.metric=val_r2", "early_stop.patience=3")
    done = command(
        "-m", *words, *metrics, *sizes, *stops, *QUICK, "precision=fp32,bf16", "evaluate_first=true", "name=r"
    )
    assert done.status == 0, done.out + done.err
    found = sweep("r")
    record = found.record(precision="fp32")
    epochs = read_epochs(found.paths.run(record.name))
    assert [each.epoch for each in epochs] == list(range(len(epochs)))
    best = min(epochs[1:], key=lambda each: each.metrics["val_mae"])
    points, labels = own["lines"](train=False).tensors
    model = load_model(found.paths.run(record.name).root, best=True)
    with torch.no_grad():
        preds = model(points)[:, 0]
    errors = preds - labels.float()
    assert best.metrics["val_mae"] == pytest.approx(errors.abs().mean().item(), rel=1e-5)
    r2 = 1 - errors.square().sum() / (labels - labels.mean()).square().sum()
    assert best.metrics["val_r2"] == pytest.approx(r2.item(), rel=1e-4)
    huber = mean_of_batches(lambda part: F.huber_loss(preds[part], labels[part].float(), delta=0.5), 40, 16)
    assert best.val_loss == pytest.approx(huber, rel=1e-5)
    assert all(each.accuracy is each.val_accuracy is None for each in epochs)
    assert record.better == {"val_mae": "min", "val_r2": "max"}
    assert best.val_loss < 0.2 * epochs[0].val_loss  # it was trained
    rows = found.rows()
    assert {row["precision"]: row["accuracy"] for row in rows} == {"fp32": "", "bf16": ""}
    assert all(float(row["val_mae"]) < 0.5 and row["val_loss"] for row in rows)


def test_multilabel_gives_the_scores_of_its_last_weights(
    command: Callable[..., Any], sweep: Callable[[str], Any], own: Any
) -> None:
    words = ("dataset=custom", "dataset._target_=tasks.tags", "model=logistic", "lr=0.1", "batch_size=32", "epochs=3")
    losses = "loss._target_=torch.nn.BCEWithLogitsLoss,tasks.Dice"
    # Each batch holds one sample, whose logits may all lie in [0, 1].
    metrics = ("metrics.f1._target_=torchmetrics.F1Score", "metrics.f1.task=multilabel", "eval_batch_size=1")
    done = command("-m", *words, losses, *metrics, *QUICK, "name=m")
    assert done.status == 0, done.out + done.err
    found = sweep("m")
    points, answers = own["tags"](train=False).tensors
    for record in found.records:
        (*_, last) = read_epochs(found.paths.run(record.name))
        with torch.no_grad():
            logits = load_model(found.paths.run(record.name).root)(points)
        if record.config["loss"]["_target_"] == "tasks.Dice":
            dice = own["Dice"]()
            assert last.val_loss == pytest.approx(mean_of_batches(lambda at: dice(logits[at], answers[at]), 40, 1))  # noqa: B023
            assert last.val_accuracy is None
            continue
        assert last.val_loss == pytest.approx(F.binary_cross_entropy_with_logits(logits, answers.float()).item())
        chosen = logits > 0
        assert last.val_accuracy == (chosen == answers).double().mean().item()
        hits, wrong = (chosen & answers).sum(), (chosen != answers).sum()
        assert last.metrics["val_f1"] == pytest.approx((2 * hits / (2 * hits + wrong)).item())


def test_segmentation_leaves_out_unknown_pixels_in_pieces_too(
    command: Callable[..., Any], sweep: Callable[[str], Any], own: Any
) -> None:
    words = ("dataset=custom", "dataset._target_=tasks.Masks", "model=custom", "model._target_=tasks.Pixels", "lr=0.05")
    metrics = ("metrics.miou._target_=torchmetrics.JaccardIndex", "metrics.miou.task=multiclass")
    ignored = ("+loss.ignore_index=255", "metrics.miou.ignore_index=255")
    more = ("+metrics.largest._target_=tasks.Largest", "checkpoint.keep_best=val_miou", "batch_size=8", "epochs=3")
    done = command("-m", *words, *metrics, *ignored, *more, *QUICK, "micro_batch=null,3", "eval_batch_size=4", "name=s")
    assert done.status == 0, done.out + done.err
    found = sweep("s")
    whole, pieces = (read_epochs(found.paths.run(found.record(micro_batch=size).name)) for size in (None, 3))
    for one, other in zip(whole, pieces, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-4)
        assert one.val_accuracy == pytest.approx(other.val_accuracy, abs=0.02)
    data = own["Masks"](train=False)
    record = found.record(micro_batch=None)
    best = max(whole, key=lambda each: each.metrics["val_miou"])
    with torch.no_grad():
        scores = load_model(found.paths.run(record.name).root, best=True, trust=True)(data.images)
    loss = mean_of_batches(lambda part: F.cross_entropy(scores[part], data.masks[part], ignore_index=255), 10, 4)
    assert best.val_loss == pytest.approx(loss, rel=1e-5)
    known = data.masks != 255
    chosen, masks = scores.argmax(1)[known], data.masks[known]
    assert best.val_accuracy == pytest.approx((chosen == masks).float().mean().item())
    overlaps = [
        ((chosen == each) & (masks == each)).sum() / ((chosen == each) | (masks == each)).sum() for each in range(3)
    ]
    assert best.metrics["val_miou"] == pytest.approx(torch.stack(overlaps).mean().item(), rel=1e-5)
    assert best.metrics["val_largest/double"] == pytest.approx(2 * scores.max().item(), rel=1e-5)


def test_the_default_loss_is_the_cross_entropy_of_earlier_sweeps(
    command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...], own: Any
) -> None:
    assert command(*tiny, "name=d").status == 0
    (record,) = sweep("d").records
    named = ("loss._target_=torch.nn.CrossEntropyLoss", "metrics={}")
    again = command(*tiny, *named, "name=d")
    assert again.status == 0
    assert len(sweep("d").records) == 1  # kept
    other = command(*tiny, "+loss.label_smoothing=0.1", "metrics.top._target_=tasks.Largest", "name=d", "epochs=1")
    assert other.status == 0, other.err
    assert len(sweep("d").records) == 2
    assert {"val_top/value", "val_top/double"} <= sweep("d").rows()[0].keys()
    assert record.settings["loss._target_"] == "torch.nn.CrossEntropyLoss"


REFUSED = {
    "no such loss": (["loss=msee"], "`loss` must be one of bce, cross_entropy, custom, huber, l1, mse, got msee; did"),
    "a sum": (["loss=mse", "+loss.reduction=sum"], "`loss.reduction` must be mean, got sum;"),
    "class numbers": (["loss=bce"], "`loss` must fit the labels, which it needs to be 0 or 1, got class numbers of 10"),
    "a piece of a loss": (
        ["loss._target_=tasks.Dice", "micro_batch=8"],
        "`micro_batch` must be null or auto for a loss like Dice, got 8; it may not be the mean of the losses of",
    ),
    "no such metric": (["metrics.f1._target_=torchmetrics.F1Scor"], "torchmetrics has no 'F1Scor'; did you mean 'F1S"),
    "no metric": (["metrics.f1._target_=torch.nn.ReLU"], "must make a metric, with update, compute, reset, got ReLU"),
    "no target": (["metrics.f1=3"], "`metrics.f1._target_` must name a class, got 3; as in metrics.f1._target_="),
    "bad arguments": (
        ["metrics.f1._target_=torchmetrics.F1Score", "metrics.f1.task=many"],
        "`metrics.f1` must have settings that torchmetrics.F1Score takes, got ValueError: Invalid",
    ),
    "an unknown argument": (
        ["metrics.mae._target_=torchmetrics.MeanAbsoluteError", "metrics.mae.task=many"],
        "`metrics.mae` must have settings that torchmetrics.MeanAbsoluteError takes, got",
    ),
    "other predictions": (
        ["metrics.mae._target_=torchmetrics.MeanAbsoluteError"],
        "`metrics.mae` must take predictions (2, 10) of torch.float32 and labels (2,) of torch.int64, got RuntimeError",
    ),
    "several numbers": (
        ["metrics.f1._target_=torchmetrics.F1Score", "metrics.f1.task=multiclass", "metrics.f1.average=none"],
        "`metrics.f1` must compute one number, or several by name, got",
    ),
    "the name of a column": (["metrics.loss._target_=tasks.Largest"], "`metrics.loss` must have another name, got the"),
    "an accuracy of regression": (
        ["loss=mse", "checkpoint.keep_best=val_accuracy"],
        "`checkpoint.keep_best` must be one of loss, val_loss, got val_accuracy;",
    ),
    "a misspelt metric": (
        [
            "metrics.f1._target_=torchmetrics.F1Score",
            "metrics.f1.task=multiclass",
            "early_stop.metric=val_f2",
            "early_stop.patience=1",
        ],
        "`early_stop.metric` must be one of loss, accuracy, val_loss, val_accuracy, val_f1, got val_f2; did you mean",
    ),
    "no direction": (
        ["metrics.size._target_=tasks.Largest", "checkpoint.keep_best=val_size"],
        "`checkpoint.keep_best` must be a metric of known direction, got val_size;",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_loss_or_metric_that_does_not_fit_is_refused_before_anything_runs(
    command: Callable[..., Any], own: Any, tiny: tuple[str, ...], tmp_path: Path, name: str
) -> None:
    words, said = REFUSED[name]
    done = command(*tiny, *words)
    assert done.status == 2, done.out
    (line,) = done.faults
    assert said in line
    assert not (tmp_path / "outputs").exists()


def test_the_builtin_losses_are_those_of_torch() -> None:
    for path in (Path(__file__).parents[2] / "conf" / "loss").glob("*.yaml"):
        target = path.read_text().partition("_target_: ")[2].strip()
        assert path.stem == "custom" or isinstance(getattr(nn, target.removeprefix("torch.nn."))(), nn.Module)
