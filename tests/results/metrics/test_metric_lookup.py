"""The metrics of comparisons: values, directions, and invalid names."""

import msgspec
import pytest

from runmanager.errors import UsageError
from runmanager.results.metrics.metric_lookup import METRIC_NAMES, find_metric


@pytest.fixture
def run(contents, timed):
    """A run of 1000 samples an epoch: a warm-up epoch of 9 seconds, then 2, 4 and 5."""
    (run,) = contents(({"device": "cpu"}, timed([9.0, 2.0, 4.0, 5.0]), {"peak_memory_bytes": 7})).runs
    return run


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("samples_per_second", [500, 250, 200]),
        ("epoch_seconds", [2, 4, 5]),
        ("wall_seconds", [2.5, 4.5, 5.5]),
        ("overall_samples_per_second", [3000 / 11]),
        ("run_seconds", [30]),
        ("accuracy", [0.875]),
        ("val_accuracy", [1 - 0.75 / 4]),
        ("loss", [0.25]),
        ("val_loss", [0.375]),
        ("peak_memory_bytes", [7]),
        ("time_to_accuracy=0.625", [11]),
        ("time_to_accuracy=0.7", [15]),
        ("time_to_accuracy=0.9", []),
    ],
)
def test_values_of_a_run(run, name, values):
    assert find_metric(name).values(run) == pytest.approx(values)


def test_training_accuracy_is_used_without_validation(contents, timed):
    epochs = [msgspec.structs.replace(epoch, val_accuracy=None) for epoch in timed([9.0, 2.0, 4.0])]
    (run,) = contents(({}, epochs, {})).runs
    assert find_metric("time_to_accuracy=0.75").values(run) == [11]


@pytest.mark.parametrize(
    ("name", "above", "below"),
    [
        ("samples_per_second", "faster", "slower"),
        ("overall_samples_per_second", "faster", "slower"),
        ("time_to_accuracy=0.9", "faster", "slower"),
        ("val_accuracy", "better", "worse"),
        ("val_loss", "worse", "better"),
        ("peak_memory_bytes", "worse", "better"),
    ],
)
def test_verdicts_by_direction_of_the_metric(name, above, below):
    metric = find_metric(name)
    assert (metric.verdict_word(1), metric.verdict_word(-1)) == (above, below)


def test_every_listed_metric_is_known():
    for name in METRIC_NAMES:
        assert find_metric(name.replace("SHARE", "0.95")).name.partition("=")[0] == name.partition("=")[0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("epoch_secs", "did you mean 'epoch_seconds'"),
        ("speed of light", "they are samples_per_second, overall_samples_per_second, epoch_seconds"),
        ("accuracy=0.9", "got 'accuracy=0.9'; did you mean 'accuracy'"),
        ("time_to_accuracy", "an accuracy above 0 and at most 1, got 'time_to_accuracy'"),
        ("time_to_accuracy=95", "got 'time_to_accuracy=95'; as in time_to_accuracy=0.95"),
        ("time_to_accuracy=nan", "got 'time_to_accuracy=nan'"),
    ],
)
def test_unknown_metric_is_rejected(name, expected):
    with pytest.raises(UsageError, match=expected):
        find_metric(name)


def test_the_end_of_an_interval_is_not_rounded_to_no_effect() -> None:
    accuracy, rate = find_metric("val_accuracy"), find_metric("samples_per_second")
    assert accuracy.format_ends(0.00003, 0.01) == ("0.00003", "0.0100")
    assert accuracy.format_ends(-0.01, -0.00003) == ("-0.0100", "-0.00003")
    assert accuracy.format_ends(0.0, 0.004) == ("0.0000", "0.0040")
    assert rate.format_ends(1.0004, 1.05) == ("1.0004", "1.050")
    assert rate.format_ends(0.9, 0.99999) == ("0.9000", "0.99999")
    assert rate.format_ends(1.0, 1 + 1e-16) == ("1.000", "1.000")
