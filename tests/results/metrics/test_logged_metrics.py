"""Metrics that programs logged: their values of a run, their comparison, and what does not apply to them."""

import dataclasses
import math

import msgspec
import pytest

from runmanager.errors import UsageError
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions, Side, resolution_of
from runmanager.results.load.cells import gather_cells
from runmanager.results.metrics.metric_lookup import find_metric, known_metrics


@pytest.fixture
def logging(contents, timed):
    """Factory of a run from the metrics of each epoch, of 1, 2, 3, … seconds; None logs nothing."""

    def make(*logged, **fields):
        epochs = timed([float(second) for second in range(1, len(logged) + 1)])
        epochs = [
            epoch if metrics is None else msgspec.structs.replace(epoch, metrics=metrics)
            for epoch, metrics in zip(epochs, logged, strict=True)
        ]
        (run,) = contents(({"lr": 0.1}, epochs, fields)).runs
        return run

    return make


@pytest.mark.parametrize(
    ("name", "at", "value", "epoch"),
    [
        ("val/f1", "last", 0.6, 3),
        ("val/f1", "best", 0.8, 2),
        ("ppl", "last", 9.0, 4),
        ("ppl", "best", 5.0, 1),
        ("val_accuracy", "best", 1 - 0.75 / 4, 4),
        ("val_loss", "best", 1.5 / 4, 4),
    ],
)
def test_the_value_of_a_run_is_that_of_its_last_or_best_epoch(logging, name, at, value, epoch):
    run = logging({"val/f1": 0.5, "ppl": 5.0}, {"val/f1": 0.8, "ppl": 7.0}, {"val/f1": 0.6, "ppl": 8.0}, {"ppl": 9.0})
    metric = find_metric(name, [run], at=at)
    assert metric.values(run) == [value]
    assert metric.epoch_of(run) == epoch


def test_the_epoch_of_a_column_is_the_last_one_by_definition(logging):
    assert find_metric("val_accuracy", [logging(None)]).epoch_of is None


def test_a_last_value_that_was_not_finite_is_missing_and_not_replaced_by_an_earlier_one(logging):
    run = logging({"val/f1": 0.5}, {"val/f1": 0.8}, {"val/f1": None})
    assert find_metric("val/f1", [run]).values(run) == []
    assert find_metric("val/f1", [run], at="best").values(run) == [0.8]
    assert find_metric("val/f1", [run], at="best").epoch_of(run) == 2


@pytest.mark.parametrize(
    ("values", "at_last", "at_best"),
    [
        ((0.5, 0.8, None), True, True),
        ((0.5, None, 0.6), False, True),
        ((0.5, 0.8, 0.6), False, False),
        ((None, None, None), True, True),
    ],
)
def test_a_value_that_should_count_is_lost_where_it_was_not_finite(logging, values, at_last, at_best):
    run = logging(*({"val/f1": value} for value in values))
    assert find_metric("val/f1", [run]).is_lost(run) is at_last
    assert find_metric("val/f1", [run], at="best").is_lost(run) is at_best
    assert not any(find_metric("val/f1", [run], at=at).is_lost(logging(None)) for at in ("last", "best"))


def test_a_run_without_the_metric_has_no_value(logging):
    run, other = logging({"val/f1": 0.5}), logging(None)
    for at in ("last", "best"):
        metric = find_metric("val/f1", [run], at=at)
        assert (metric.values(other), metric.epoch_of(other)) == ([], None)


def test_a_metric_with_the_name_of_another_one_is_found_under_a_prefix(logging):
    run = logging({"run_seconds": 7.0, "loss": 3.0, "metrics.own": 4.0, "f1": 0.5})
    assert find_metric("run_seconds", [run]).values(run) == [30]
    assert find_metric("metrics.run_seconds", [run]).values(run) == [7]
    assert find_metric("metrics.loss", [run]).values(run) == [3]
    assert find_metric("metrics.own", [run], better="max").values(run) == [4]
    assert known_metrics([run])[-4:] == ["metrics.run_seconds", "metrics.loss", "metrics.own", "f1"]


@pytest.mark.parametrize(
    ("name", "better", "seconds"),
    [
        ("time_to_val/f1=0.8", None, [3]),
        ("time_to_val/f1=0.9", None, []),
        ("time_to_val/f1=0.7", "min", [1]),
        ("time_to_ppl=6", None, [3]),
        ("time_to_a=b=2", "max", [3]),
        ("time_to_val_loss=0.75", None, [3]),
    ],
)
def test_time_to_a_metric_is_training_time_to_the_first_epoch_that_reaches_it(logging, name, better, seconds):
    run = logging({"val/f1": 0.5, "ppl": 7.0, "a=b": 1}, {"val/f1": 0.8, "ppl": 6.0, "a=b": 2}, {"val/f1": 0.6})
    assert find_metric(name, [run], better=better).values(run) == seconds


def test_rate_of_a_unit_is_that_of_each_measured_epoch(contents, timed):
    epochs = [msgspec.structs.replace(each, units={"tokens": 600}) for each in timed([9.0, 2.0, 4.0])]
    (run,) = contents(({"lr": 0.1}, [*epochs, *timed([1.0], num_warmup=0)], {})).runs
    metric = find_metric("tokens_per_second", [run])
    assert metric.values(run) == [300, 150]
    assert (metric.effect, metric.more_is_better, metric.count_columns[0]) == ("speedup", True, "baseline_epochs")
    with pytest.raises(UsageError, match="did you mean 'tokens_per_second'"):
        find_metric("token_per_second", [run])


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("val/f2", {}, "got 'val/f2'; did you mean 'val/f1'?"),
        ("time_to_val/f2=0.8", {}, "did you mean 'time_to_val/f1'?"),
        ("time_to_val/f1=soon", {}, "end in the number to reach, got 'time_to_val/f1=soon'; as in time_to_val/f1=0.8."),
        ("qqqqqqqq", {}, "time_to_accuracy=SHARE, val/f1, zeal, metrics.note."),
        ("zeal", {}, "be max or min for 'zeal'"),
        ("time_to_zeal=3", {}, "be max or min for 'zeal'"),
        ("metrics.note", {}, "be max or min for 'metrics.note'"),
        ("time_to_metrics.note=3", {}, "be max or min for 'metrics.note'"),
        ("run_seconds", {"better": "max"}, "`--better` must go with a metric of epochs, got 'run_seconds'"),
        ("peak_memory_bytes", {"at": "best"}, "`--at` must go with a metric of epochs, got 'peak_memory_bytes'"),
        ("time_to_accuracy=0.5", {"at": "best"}, "`--at` must go with"),
        ("time_to_val/f1=0.5", {"at": "best"}, "`--at` must go with"),
    ],
)
def test_what_a_run_lacks_and_what_does_not_apply_is_refused(logging, name, options, expected):
    run = logging({"val/f1": 0.5, "zeal": 1.0, "note": 2.0})
    with pytest.raises(UsageError) as caught:
        find_metric(name, [run], **options)
    assert expected in str(caught.value)


@pytest.fixture
def twins(contents, timed):
    """A sweep whose logged values equal those of columns: val_loss as `own/loss`, samples as `tokens`."""

    def epochs(lr, seed):
        noise = 1 + 0.01 * math.sin(37 * seed + 100 * lr)
        return [
            msgspec.structs.replace(
                epoch,
                metrics={"own/loss": epoch.val_loss * lr * noise, "test/score": epoch.val_accuracy},
                val_loss=epoch.val_loss * lr * noise,
                units={"tokens": epoch.samples},
            )
            for epoch in timed([lr * noise] * 7)
        ]

    return contents(*(({"lr": lr, "seed": seed}, epochs(lr, seed), {}) for lr in (1.0, 1.5) for seed in range(4)))


@pytest.mark.parametrize(
    ("logged", "column", "verdict"),
    [
        ("own/loss", "val_loss", "worse"),
        ("tokens_per_second", "samples_per_second", "slower"),
        ("time_to_test/score=0.8", "time_to_accuracy=0.8", "slower"),
    ],
)
def test_a_logged_metric_is_compared_like_a_column_with_equal_values(twins, logged, column, verdict):
    (found,), (expected,) = (compare(twins, None, CompareOptions("lr", metric=each)).rows for each in (logged, column))
    assert found["verdict"] == expected["verdict"] == verdict
    effect = found.metric.effect
    assert [found[name] for name in (effect, "ci_low", "ci_high")] == pytest.approx(
        [expected[name] for name in (effect, "ci_low", "ci_high")]
    )
    assert found["reason"] == expected["reason"]


def test_margin_of_a_logged_metric_is_in_its_own_unit(twins):
    options = CompareOptions("lr", metric="own/loss", margin=2.0, better="max")
    (row,) = compare(twins, None, options).rows
    assert row["verdict"] == "better"  # as the requested direction says
    nearly = CompareOptions("lr", metric="test/score", margin=2.0)
    (row,) = compare(twins, None, nearly).rows
    assert row["verdict"] == "not measured"  # equal in all runs: the noise is not known


def test_values_of_best_epochs_say_so(twins):
    (row,) = compare(twins, None, CompareOptions("lr", metric="own/loss", at="best")).rows
    assert "the best epoch of each run was picked after looking" in row["reason"]
    table = compare(twins, None, CompareOptions("lr", metric="own/loss", at="best"))
    assert "own/loss at each run's best epoch (less is better)" in table.legend


def test_a_result_of_the_whole_run_has_no_best_epoch_to_pick(contents, timed):
    def summary(lr, seed):
        return {"summary": {"bleu": 20 + 5 * lr + (lr * seed * seed % 7) / 100}}

    runs = [({"lr": lr, "seed": seed}, timed([1.0]), summary(lr, seed)) for lr in (1, 2) for seed in (1, 2, 3)]
    (row,) = compare(contents(*runs), None, CompareOptions("lr", metric="bleu", at="best")).rows
    assert row["verdict"] == "better"
    assert "picked" not in (row["reason"] or "")


def test_two_runs_a_side_do_not_measure_a_logged_metric(contents, timed):
    def epochs(value):
        return [msgspec.structs.replace(each, metrics={"val/f1": value}) for each in timed([1.0] * 7)]

    runs = [({"lr": lr, "seed": seed}, epochs(lr + seed / 9), {}) for lr in (0.1, 0.2) for seed in (1, 2)]
    (row,) = compare(contents(*runs), None, CompareOptions("lr", metric="val/f1")).rows
    assert row["verdict"] == "not measured" and "too few runs" in row["reason"]


def test_a_speed_of_another_unit_is_said_as_a_quotient(twins):
    legend = compare(twins, None, CompareOptions("lr", metric="tokens_per_second")).legend
    assert legend.startswith("Speedup: candidate / baseline, tokens_per_second")
    assert "(more is better)" in legend


@pytest.mark.parametrize(
    ("name", "values", "resolution"),
    [
        ("test/accuracy", (0.95, 0.9, 0.85), 1 / 20),
        ("top_acc", (0.95, 0.9, 0.85), 1 / 20),
        ("test/accuracy", (95.05, 90.1, 85.0), 0),
        ("val/f1", (0.95, 0.9, 0.85), 0),
    ],
)
def test_only_a_share_that_is_an_accuracy_has_a_resolution(logging, name, values, resolution):
    run = logging(*({name: value} for value in values))
    side = Side("here", gather_cells([run], (), None).cells, find_metric(name, [run]))
    assert resolution_of(side.metric, [side]) == resolution


def test_a_name_means_its_column_of_the_results_table(logging):
    run = logging({"loss": -1.0, "metrics.loss": 7.0, "tokens_per_second": 3.0})
    epochs = [msgspec.structs.replace(epoch, units={"tokens": 5}) for epoch in run.epochs]
    run = dataclasses.replace(run, epochs=epochs)

    def values(name):
        return find_metric(name, [run], better="max").values(run)

    assert values("loss") == [run.epochs[-1].loss]
    assert values("metrics.loss") == [-1.0] and values("metrics.metrics.loss") == [7.0]
    assert values("metrics.tokens_per_second") == [3.0]
    assert find_metric("tokens_per_second", [run]).per_epoch, "the rate of the unit"


def test_the_column_of_a_run_by_steps_is_that_of_the_last_record_that_has_any(logging):
    """As in the tables: few intervals of steps are evaluated."""
    run = logging(None, None, None, interval="steps")
    evaluated = [msgspec.structs.replace(each, val_loss=None) for each in run.epochs]
    evaluated[1] = msgspec.structs.replace(evaluated[1], val_loss=0.7)
    by_steps = dataclasses.replace(run, epochs=evaluated)
    by_epochs = dataclasses.replace(by_steps, record=msgspec.structs.replace(run.record, interval=msgspec.UNSET))
    for run, values in ((by_steps, [0.7]), (by_epochs, [])):
        metric = find_metric("val_loss", [run])
        assert metric.values(run) == values
        assert metric.is_lost(run) is (not values)
