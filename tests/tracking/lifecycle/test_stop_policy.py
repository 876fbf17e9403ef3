"""Early stopping: a run stops when its best epoch is `patience` epochs ago."""

import pytest

from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.lifecycle.outcome import EarlyStopping
from runmanager.tracking.options import EarlyStopOptions, define_metric


def history(*values: float | None, metric: str = "val_loss", first: int = 1) -> list[EpochRecord]:
    return [EpochRecord(epoch=first + number, **{metric: value}) for number, value in enumerate(values)]


def reason_to_stop(epochs: list[EpochRecord], options: EarlyStopOptions) -> str | None:
    """Return the reason to stop after the last epoch, None to continue."""
    early_stopping = EarlyStopping(options)
    return [early_stopping.reason(record, counted="epoch") for record in epochs][-1]


def test_without_a_metric_a_run_never_stops_early() -> None:
    assert reason_to_stop(history(1.0, 2.0, 3.0, 4.0, 5.0), EarlyStopOptions()) is None


@pytest.mark.parametrize(
    ("values", "stops"),
    [
        ((1.0,), False),
        ((1.0, 1.1), False),
        ((1.0, 1.1, 1.2), True),
        ((1.0, 0.95, 0.9), False),
        ((1.0, 0.95, 0.5, 0.6, 0.7), True),
        ((1.0, 1.0, 1.0), True),
        ((None, None, None, None), False),
        ((1.0, None, None), True),
    ],
)
def test_a_loss_that_does_not_fall_stops_after_patience(values: tuple[float | None, ...], stops: bool) -> None:
    reason = reason_to_stop(history(*values), EarlyStopOptions(metric="val_loss", patience=2))
    assert (reason is not None) is stops


def test_an_accuracy_must_rise_by_more_than_min_delta() -> None:
    options = EarlyStopOptions(metric="accuracy", patience=2, min_delta=0.1)
    assert reason_to_stop(history(0.5, 0.7, 0.9, metric="accuracy"), options) is None
    stopped = reason_to_stop(history(0.5, 0.55, 0.59, metric="accuracy"), options)
    assert stopped == "accuracy has improved by no more than 0.1 since epoch 1 (0.5)"


def test_the_evaluation_before_training_does_not_count() -> None:
    options = EarlyStopOptions(metric="val_loss", patience=2)
    assert reason_to_stop(history(0.1, 1.0, 0.9, first=0), options) is None


def logged(*values: float | None, name: str = "val/f1", first: int = 1) -> list[EpochRecord]:
    return [EpochRecord(epoch=number, metrics={name: value}) for number, value in enumerate(values, start=first)]


@pytest.mark.parametrize(("name", "stops"), [("val/f1", False), ("val/mae", True)])
def test_a_logged_metric_has_the_direction_of_its_name(name: str, stops: bool) -> None:
    options = EarlyStopOptions(metric=name, patience=2)
    assert (reason_to_stop(logged(0.1, 0.2, 0.3, name=name), options) is not None) is stops


def test_a_declared_direction_outweighs_the_name(own_directions: None) -> None:
    define_metric("val/f1", better="min")
    options = EarlyStopOptions(metric="val/f1", patience=2)
    assert reason_to_stop(logged(0.1, 0.2, 0.3), options) == "val/f1 was best in epoch 1 (0.1)"
    define_metric("loss", better="max")
    assert reason_to_stop(history(1.0, 2.0, 3.0, metric="loss"), EarlyStopOptions(metric="loss", patience=2)) is None


def test_epochs_without_the_logged_metric_are_skipped() -> None:
    options = EarlyStopOptions(metric="val/f1", patience=2)
    assert reason_to_stop(logged(None, None, None), options) is None
    assert reason_to_stop([*logged(0.5), *history(1.0, 1.0, 1.0, first=2)], options) is None
    every_third = [*logged(0.5), *history(1.0, 1.0, first=2), *logged(0.4, first=4), *history(1.0, 1.0, first=5)]
    assert reason_to_stop(every_third, options) is None, "one evaluation without an improvement"
    stopped = reason_to_stop([*every_third, *logged(0.3, first=7)], options)
    assert stopped == "val/f1 was best in epoch 1 (0.5)"


def test_a_logged_loss_counts_where_the_run_computed_none() -> None:
    epochs = [EpochRecord(epoch=1, loss=3.0, metrics={"loss": 1.0}), EpochRecord(epoch=2, metrics={"loss": 2.0})]
    assert reason_to_stop(epochs, EarlyStopOptions(metric="loss", patience=1)) is None
