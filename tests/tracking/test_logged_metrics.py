"""Logged metrics and units in real runs: in epochs.jsonl, in the history, after a resume, and in the columns."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from runmanager import EarlyStopOptions, RunManager, RunOptions, UsageError
from runmanager.records.files.paths import RunPaths
from runmanager.records.storage.reader import StoredRun, read_epochs
from runmanager.tracking.options import Progress

NETWORK = nn.Linear(2, 2)


class MeanMetric:
    """A metric with the methods of torchmetrics."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.num_resets = 0

    def update(self, value: float) -> None:
        self.values.append(value)

    def compute(self) -> torch.Tensor:
        return torch.tensor(self.values).mean()

    def reset(self) -> None:
        self.values = []
        self.num_resets += 1


def lines(paths: RunPaths) -> list[dict[str, Any]]:
    return [json.loads(line) for line in paths.epochs.read_text().splitlines()]


def run_epochs(folder: Path, body: Callable[[Any], None], *, count: int = 1, **options: Any) -> Any:
    with RunManager(folder, sinks=[]).run({}, NETWORK, **options) as run:
        for epoch in run.epochs(count):
            body(epoch)
    return run


def test_values_by_any_name_and_of_any_kind_are_recorded(tmp_path: Path) -> None:
    def log(epoch: Any) -> None:
        epoch.track(1.0, samples=1)
        epoch.log(val_f1=0.5, values=3, self=np.float32(0.25))
        epoch.log({"val/f1": torch.tensor([[0.75]], requires_grad=True), "ünlike any name": np.array([2])})
        epoch.log({"f1": 0.1}, f2=torch.tensor(2, dtype=torch.int64))
        epoch.log({})

    run = run_epochs(tmp_path, log)
    expected = {
        **{"val_f1": 0.5, "values": 3.0, "self": 0.25, "val/f1": 0.75, "ünlike any name": 2.0, "f1": 0.1, "f2": 2.0}
    }
    (line,) = lines(run.paths)
    assert line["metrics"] == expected and list(line["metrics"]) == list(expected)
    assert "units" not in line
    assert run.history[0].metrics == expected == read_epochs(run.paths)[0].metrics


def test_an_epoch_that_logs_nothing_has_no_new_fields(tmp_path: Path) -> None:
    run = run_epochs(tmp_path, lambda epoch: epoch.track(1.0, samples=1))
    assert not {"metrics", "units"} & set(lines(run.paths)[0])


def test_the_last_value_of_a_name_counts_also_of_a_tensor_that_is_reused(tmp_path: Path) -> None:
    def log(epoch: Any) -> None:
        shared = torch.zeros(())
        for number in (1.0, 2.0):
            epoch.track(1.0, samples=1)
            shared.fill_(number)
            epoch.log(f1=shared, other=MeanMetric())
        epoch.log(other=5)
        shared.fill_(9.0)

    assert run_epochs(tmp_path, log).history[0].metrics == {"f1": 2.0, "other": 5.0}


def test_accumulators_are_computed_and_reset_at_the_epochs_end(tmp_path: Path) -> None:
    metric, computed = MeanMetric(), []

    def log(epoch: Any) -> None:
        epoch.track(1.0, samples=1)
        epoch.log(f1=metric, same=metric)
        metric.update(1.0 * epoch.number)
        metric.update(2.0 * epoch.number)
        computed.append(metric.num_resets)

    run = run_epochs(tmp_path, log, count=2)
    assert [each.metrics for each in run.history] == [{"f1": 1.5, "same": 1.5}, {"f1": 3.0, "same": 3.0}]
    assert computed == [0, 1] and metric.num_resets == 2, "once in each epoch"


def test_a_collection_gives_each_of_its_metrics_below_its_name(tmp_path: Path) -> None:
    class Collection(MeanMetric):
        def compute(self) -> Any:
            return {"F1": torch.tensor(0.5), "ratio": 0.25}

    def log(epoch: Any) -> None:
        epoch.log(val=collection, lr=0.1)

    collection = Collection()
    assert run_epochs(tmp_path, log).history[0].metrics == {"val/F1": 0.5, "val/ratio": 0.25, "lr": 0.1}
    assert collection.num_resets == 1


def test_a_collection_must_not_overwrite_another_metric(tmp_path: Path, only_run: Callable[[], StoredRun]) -> None:
    class Collection(MeanMetric):
        def compute(self) -> Any:
            return {"F1": 0.5}

    def log(epoch: Any) -> None:
        epoch.log({"val/F1": 0.9, "val": Collection()})

    with pytest.raises(UsageError, match="'val/F1' must be logged once in an epoch, got it from 'val' too"):
        run_epochs(tmp_path / "sweep", log)
    assert only_run().epochs[0].metrics == {"val/F1": 0.9}


def test_a_metric_that_cannot_be_computed_fails_the_run_with_its_error(
    tmp_path: Path, only_run: Callable[[], StoredRun]
) -> None:
    class Broken(MeanMetric):
        def compute(self) -> Any:
            raise ZeroDivisionError("no samples")

    class Curve(MeanMetric):
        def compute(self) -> Any:
            return torch.zeros(3)

    for metric, kind, text in ((Broken(), ZeroDivisionError, "no samples"), (Curve(), UsageError, r"shape \(3,\)")):
        with pytest.raises(kind, match=text) as raised:
            run_epochs(tmp_path / "sweep", lambda epoch, metric=metric: epoch.log(roc=metric, lr=0.1), count=3)
        assert "metric 'roc'" in "".join(raised.value.__notes__)
        assert metric.num_resets == 0
        (line,) = lines(only_run().paths)
        assert line["metrics"] == {"lr": 0.1}, "the epoch is trained, so it is recorded, without the metric"
        record = only_run().record
        assert (record.status, record.reason) == ("failed", "exception") and record.message.startswith(kind.__name__)


def test_metrics_of_steps_are_means_weighted_by_samples(tmp_path: Path) -> None:
    def track(epoch: Any) -> None:
        for samples, value in ((1, 1.0), (3, 2.0)):
            epoch.track(0.5, samples=samples, metrics={"ppl": torch.tensor(value), "aux": value})
            epoch.track_eval(0.5, samples=samples, metrics={"val_ppl": 10 * value})
        epoch.track(0.5, samples=4, metrics={"aux": 0.0})  # a metric of some steps only

    (record,) = run_epochs(tmp_path, track).history
    assert record.metrics == {"ppl": 1.75, "aux": 7 / 8, "val_ppl": 17.5}
    assert record.samples == 8


def test_units_are_summed_up(tmp_path: Path) -> None:
    def track(epoch: Any) -> None:
        epoch.track(0.5, samples=2, tokens=512)
        epoch.track(0.5, samples=2, tokens=np.int64(512), frames=0)

    run = run_epochs(tmp_path, track, count=2)
    assert [line["units"] for line in lines(run.paths)] == [{"tokens": 1024, "frames": 0}] * 2
    assert run.history[1].units == {"tokens": 1024, "frames": 0}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "got bool"),
        ("0.5", "got str"),
        (None, "got NoneType"),
        (1j, "got complex"),
        ([1.0], "got list"),
        (np.zeros(2), "got ndarray"),
        (np.bool_(True), "got bool"),
        (MeanMetric, "got type"),
        (torch.zeros(2), r"shape \(2,\); take its mean"),
        (torch.zeros(0), r"shape \(0,\)"),
        (torch.tensor(True), r"a tensor of torch\.bool"),
        (torch.tensor(1j), r"a tensor of torch\.complex64"),
    ],
)
def test_what_is_not_one_number_is_refused_in_one_line_and_changes_nothing(
    tmp_path: Path, value: Any, message: str
) -> None:
    def misuse(epoch: Any) -> None:
        for call in (
            lambda: epoch.log(fine=1.0, f1=value),
            lambda: epoch.track(1.0, samples=1, tokens=3, metrics={"fine": 1.0, "f1": value}),
            lambda: epoch.track_eval(1.0, samples=1, metrics={"f1": value}),
        ):
            with pytest.raises(UsageError, match=rf"^Metric 'f1' must be .*{message}") as caught:
                call()
            assert "\n" not in str(caught.value)

    run = run_epochs(tmp_path, misuse)
    assert not run.history[0].metrics and not run.history[0].units
    assert (run.history[0].samples, run.history[0].loss, run.history[0].val_loss) == (0, None, None)


@pytest.mark.parametrize("name", ["", " \t", 3, None, "two\nlines", "\x1b[31m", "\ud800"])
def test_a_bad_name_is_refused(tmp_path: Path, name: Any) -> None:
    def misuse(epoch: Any) -> None:
        for call in (
            lambda: epoch.log({name: 1.0}),
            lambda: epoch.track(1.0, samples=1, metrics={name: 1.0}),
        ):
            with pytest.raises(UsageError, match=r"name must be (text|of visible characters)\b.*, got"):
                call()

    assert not run_epochs(tmp_path, misuse).history[0].metrics


def test_units_must_be_whole_numbers_with_the_names_of_keywords(tmp_path: Path) -> None:
    def misuse(epoch: Any) -> None:
        for count in (1.5, -1, True, "3", torch.tensor(3), None):
            with pytest.raises(UsageError, match="`tokens` must be a whole number from 0 to"):
                epoch.track(1.0, samples=1, tokens=count)
        for name in ("my tokens", "", "3d", "a/b"):
            with pytest.raises(UsageError, match="unit's name must be an identifier, got"):
                epoch.track(1.0, samples=1, **{name: 3})
        for name, meant in (("sample", "samples"), ("ignore_idx", "ignore_index"), ("classdim", "class_dim")):
            with pytest.raises(UsageError, match=f"`{name}` must be an argument of track .*did you mean '{meant}'"):
                epoch.track(1.0, samples=1, **{name: 3})

    record = run_epochs(tmp_path, misuse).history[0]
    assert not record.units and record.samples == 0


def test_other_misuse_is_refused(tmp_path: Path) -> None:
    def misuse(epoch: Any) -> None:
        for values in (0.5, [("f1", 0.5)], "f1"):
            with pytest.raises(UsageError, match=r"must get names with their values, got .*log\(name=value\)"):
                epoch.log(values)
        with pytest.raises(UsageError, match="`metrics` must be a mapping of names to numbers, got list"):
            epoch.track(1.0, samples=1, metrics=[0.5])
        with pytest.raises(UsageError, match=r"got MeanMetric; pass it to epoch\.log"):
            epoch.track(1.0, samples=1, metrics={"f1": MeanMetric()})
        epochs.append(epoch)

    epochs: list[Any] = []
    run_epochs(tmp_path, misuse)
    with pytest.raises(UsageError, match=r"log\(\) must come before its epoch's end, got epoch 1, which has ended"):
        epochs[0].log(f1=0.5)


def test_a_name_comes_from_one_method_in_an_epoch(tmp_path: Path) -> None:
    def mix(epoch: Any) -> None:
        calls = {
            "track": lambda name: epoch.track(1.0, samples=1, metrics={name: 1.0}),
            "track_eval": lambda name: epoch.track_eval(1.0, samples=1, metrics={name: 1.0}),
            "log": lambda name: epoch.log({name: 1.0}),
        }
        for first, begin in calls.items():
            begin(first)
            for second, other in calls.items():
                if second == first:
                    other(first)
                    continue
                with pytest.raises(UsageError, match=rf"from one method .*, got {second}\(\) after {first}\(\)"):
                    other(first)

    assert run_epochs(tmp_path, mix).history[0].metrics == {"track": 1.0, "track_eval": 1.0, "log": 1.0}


COLUMNS = {"loss": 4.0, "accuracy": 0.25, "val_loss": 3.0, "val_accuracy": 0.125}


def columns(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in COLUMNS}


def test_logged_values_fill_their_columns_unless_the_run_computed_its_own(tmp_path: Path) -> None:
    def by_logging(epoch: Any) -> None:
        epoch.log(COLUMNS)

    def by_tracking(epoch: Any) -> None:
        preds, labels = torch.eye(2), torch.tensor([0, 1])
        epoch.track(1.0, preds, labels)
        epoch.track_eval(2.0, preds, labels)
        epoch.log(COLUMNS)

    (filled,) = run_epochs(tmp_path / "filled", by_logging).history
    assert columns(filled) == COLUMNS and not filled.metrics
    (computed,) = run_epochs(tmp_path / "computed", by_tracking).history
    assert columns(computed) == {"loss": 1.0, "accuracy": 1.0, "val_loss": 2.0, "val_accuracy": 1.0}
    assert computed.metrics == COLUMNS, "kept with it"


@pytest.mark.parametrize("value", [math.nan, math.inf, torch.tensor(-math.inf), 10**400])
def test_values_that_are_not_finite_are_recorded_as_null(tmp_path: Path, value: Any) -> None:
    def log(epoch: Any) -> None:
        epoch.track(1.0, samples=1, metrics={"mean": value})
        epoch.track(1.0, samples=0, metrics={"of_nothing": 1.0})
        epoch.log(fid=value, val_accuracy=value)

    run = run_epochs(tmp_path, log, count=2)
    assert [each.metrics for each in run.history] == [{"mean": None, "of_nothing": None, "fid": None}] * 2
    assert lines(run.paths)[0]["metrics"] == {"mean": None, "of_nothing": None, "fid": None}
    assert run.history[0].val_accuracy is None and run.record.status == "finished"


@pytest.mark.parametrize("name", ["loss", "val_loss"])
def test_a_run_diverges_by_a_logged_loss(tmp_path: Path, name: str) -> None:
    run = run_epochs(tmp_path, lambda epoch: epoch.log({name: math.nan}), count=3)
    assert (run.record.status, run.record.reason, len(run.history)) == ("failed", "diverged", 1)
    assert run.record.message.startswith(f"{name} is nan in epoch 1")


class OneCheckpoint:
    """Keeps the progress after each epoch, as a checkpoint does."""

    def __init__(self, path: Path) -> None:
        self.saved = path / "progress"

    def observe(self, record: Any) -> None:
        pass

    def is_due(self, epoch: int) -> bool:
        return True

    def save(self, path: Path, progress: Progress) -> None:
        path.write_bytes(b"")
        self.progress = progress

    def load(self, path: Path) -> Progress:
        return self.progress

    def epoch_begins(self) -> None:
        pass


def test_a_resumed_run_has_the_metrics_of_its_earlier_epochs(tmp_path: Path) -> None:
    checkpointer = OneCheckpoint(tmp_path)
    options = RunOptions(early_stop=EarlyStopOptions(metric="val/f1", patience=2))
    manager = RunManager(tmp_path / "sweep", sinks=[])
    values = [0.5, 0.9, 0.4, 0.3, 0.2]

    def train(killed_after: int) -> Any:
        with manager.run({}, can_resume=True, options=options) as run:
            run.begin(nn.Linear(2, 2), None, checkpointer=checkpointer)
            for epoch in run.epochs(len(values)):
                if epoch.number > killed_after:
                    raise KeyboardInterrupt
                epoch.track(1.0, samples=1, tokens=10 * epoch.number)
                epoch.log({"val/f1": values[epoch.number - 1]})
        return run

    with pytest.raises(KeyboardInterrupt):
        train(killed_after=3)
    run = train(killed_after=9)
    assert run.is_resumed and [each.epoch for each in run.history] == [1, 2, 3, 4]
    assert [each.metrics for each in run.history] == [{"val/f1": value} for value in values[:4]]
    assert [each.units for each in read_epochs(run.paths)] == [{"tokens": 10 * number} for number in (1, 2, 3, 4)]
    assert run.record.message == "val/f1 was best in epoch 2 (0.9)", "of the attempt before"


def test_early_stopping_by_a_metric_that_no_epoch_has_is_noted(tmp_path: Path) -> None:
    options = RunOptions(early_stop=EarlyStopOptions(metric="val/f1"))
    for name, is_noted in (("val/f2", True), ("val/f1", False)):
        run = run_epochs(tmp_path / str(is_noted), lambda epoch, name=name: epoch.log({name: 0.5}), options=options)
        assert ("no early stopping: no epoch recorded val/f1" in run.record.notes) is is_noted


def test_a_kept_run_discards_what_is_logged(tmp_path: Path) -> None:
    for _ in range(2):
        run = run_epochs(tmp_path, lambda epoch: epoch.log(f1=0.5))
    epoch = run.begin_epoch()
    epoch.log(f1=0.7)
    epoch.track(1.0, samples=1, tokens=3, metrics={"ppl": 2.0})
    assert run.end_epoch(epoch).metrics == {"f1": 0.5}, "the stored one"
