"""Early stopping: the best epoch is long enough ago."""

import pytest

from runmanager.records.run.record import EpochRecord
from runmanager.tracking.lifecycle.stop_policy import EarlyStopping
from runmanager.tracking.options import EarlyStopOptions


def history(*values: float | None, metric: str = "val_loss", first: int = 1) -> list[EpochRecord]:
    return [EpochRecord(epoch=first + number, **{metric: value}) for number, value in enumerate(values)]


def reason_to_stop(epochs: list[EpochRecord], options: EarlyStopOptions) -> str | None:
    """What is said after the last of the epochs."""
    watching = EarlyStopping(options)
    return [watching.reason(record) for record in epochs][-1]


def test_without_a_metric_nothing_stops() -> None:
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
def test_a_loss_stops_after_patience(values: tuple[float | None, ...], stops: bool) -> None:
    reason = reason_to_stop(history(*values), EarlyStopOptions(metric="val_loss", patience=2))
    assert (reason is not None) is stops


def test_an_accuracy_goes_up_and_small_steps_do_not_count() -> None:
    options = EarlyStopOptions(metric="accuracy", patience=2, min_delta=0.1)
    assert reason_to_stop(history(0.5, 0.7, 0.9, metric="accuracy"), options) is None
    assert reason_to_stop(history(0.5, 0.55, 0.59, metric="accuracy"), options) == "accuracy was best in epoch 1 (0.5)"


def test_the_evaluation_before_training_does_not_count() -> None:
    options = EarlyStopOptions(metric="val_loss", patience=2)
    assert reason_to_stop(history(0.1, 1.0, 0.9, first=0), options) is None
