"""The metrics of comparisons: values, directions, and invalid names."""

import msgspec
import pytest

from runmanager.errors import UsageError
from runmanager.records.run.measurement import OUTCOMES
from runmanager.results.compare.verdict import verdict
from runmanager.results.metrics.metric_lookup import (
    METRIC_NAMES,
    any_direction,
    default_metrics,
    find_metric,
    has_metrics,
    requested_metric,
)
from runmanager.results.stats.descriptive import Interval


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
    no_effect = 0.0 if (metric := find_metric(name)).effect == "difference" else 1.0
    intervals = Interval(no_effect + 0.1, no_effect + 0.2), Interval(no_effect - 0.2, no_effect - 0.1)
    assert [verdict(metric, each, tolerance=0.0, margin=None) for each in intervals] == [above, below]


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


@pytest.mark.parametrize(
    ("name", "effect", "more_is_better", "counted", "lack"),
    [
        ("samples_per_second", "speedup", True, "epochs", "no samples_per_second"),
        ("overall_samples_per_second", "speedup", True, "runs", "no overall_samples_per_second"),
        ("epoch_seconds", "speedup", False, "epochs", "no epoch_seconds"),
        ("wall_seconds", "speedup", False, "epochs", "no wall_seconds"),
        ("run_seconds", "speedup", False, "runs", "no run_seconds"),
        ("peak_memory_bytes", "ratio", False, "runs", "no peak_memory_bytes"),
        ("val_loss", "difference", False, "runs", "no val_loss"),
        ("time_to_accuracy=1", "speedup", False, "runs", "never reached 1"),
    ],
)
def test_what_a_metric_is(name, effect, more_is_better, counted, lack):
    metric = find_metric(name)
    assert (metric.effect, metric.more_is_better, metric.lack) == (effect, more_is_better, lack)
    assert metric.is_time is (effect == "speedup" and not more_is_better)
    assert metric.count_columns == (f"baseline_{counted}", f"candidate_{counted}")
    if name == "samples_per_second":
        assert metric.value_columns == ("baseline_samples_per_second", "candidate_samples_per_second")
        return
    assert metric.value_columns == ("baseline_value", "candidate_value")
    assert metric.columns == (
        *("axis", "baseline", "candidate", "metric", "baseline_value", "candidate_value", effect),
        *("ci_low", "ci_high", "verdict", "reason", *metric.count_columns),
    )


def test_effects_and_values_as_people_read_them(contents, timed):
    assert find_metric("samples_per_second").format_effect(1.234567) == "1.235"
    assert find_metric("val_accuracy").format_effect(0.0123456) == find_metric("val_accuracy").format_value(0.0123456)
    logged = [msgspec.structs.replace(epoch, metrics={"f1": 0.123456}) for epoch in timed([9.0, 1.0])]
    runs = contents(({}, logged, {})).runs
    assert find_metric("f1", runs).format_value(0.123456) == "0.1235"
    assert find_metric("f1", runs).rounded and not find_metric("val_accuracy").rounded


def test_metrics_that_runs_recorded(contents, timed):
    bare = [msgspec.structs.replace(each, **dict.fromkeys(OUTCOMES)) for each in timed([9.0, 1.0])]
    logged = [msgspec.structs.replace(each, metrics={"train_f1": 0.1, "f1": 0.2, "odd": 3.0}) for each in bare]
    none, some, columns = (contents(({}, epochs, {})).runs for epochs in (bare, logged, timed([9.0, 1.0])))
    summed = contents(({}, bare, {"summary": {"f1": 0.5}})).runs
    assert [has_metrics(runs) for runs in (none, some, columns, summed)] == [False, True, True, True]
    assert requested_metric("f1", some).name == "f1"
    assert requested_metric("odd", some) is None and requested_metric("f1", none) is None
    assert any_direction("odd", some).more_is_better and any_direction("f1", some).more_is_better
    assert [name for name in default_metrics(some) if "f1" in name] == ["f1", "train_f1"]
    assert list(default_metrics(columns)) == ["val_accuracy", "val_loss", "accuracy", "loss"]


def test_a_column_that_was_lost_at_the_end_is_told_from_one_that_never_was(contents, timed):
    first, *others = timed([9.0, 1.0, 1.0])
    ended = [first, *(msgspec.structs.replace(each, val_loss=None) for each in others)]
    never = [msgspec.structs.replace(each, val_loss=None) for each in (first, *others)]
    lost, known, without = contents(({}, ended, {}), ({}, [first, *others], {}), ({}, never, {})).runs
    assert [find_metric("val_loss").is_lost(run) for run in (lost, known, without)] == [True, False, False]
    assert not find_metric("val_loss", at="best").is_lost(lost)
