"""Conditions on a comparison: how they are read, and their answer from the interval of each pair."""

import pytest

from runmanager.errors import UsageError
from runmanager.results.compare.comparison_table import ComparisonRow, ComparisonTable, MeasuredEffect
from runmanager.results.gate.fail_if import GateStatus, judge_condition, parse_condition
from runmanager.results.metrics.metric_lookup import find_metric
from runmanager.results.stats.descriptive import Estimate

PASSED, FAILED, NOT_KNOWN = GateStatus.PASSED, GateStatus.FAILED, GateStatus.NOT_KNOWN


def table(*intervals, metric="samples_per_second", drift=0.0, margin=0.03, tolerance=0.0, detectable=0.0):
    found = find_metric(metric)
    rows = []
    for number, ends in enumerate(intervals):
        values = dict.fromkeys(found.columns) | {
            "axis": "sweep", "baseline": "a", "candidate": "b", "verdict": "", "reason": "b: pending", "lr": number,
        }  # fmt: skip
        effect = None
        if ends is not None:
            low, high = ends
            middle = (low + high) / 2
            estimate = Estimate(middle, low, high, (high - low) / 4, 30.0)
            effect = MeasuredEffect(estimate, tolerance, margin, {}, drift, detectable)
            values |= {found.effect: middle, "ci_low": low, "ci_high": high}
        rows.append(ComparisonRow(values, [], metric=found, effect=effect, is_stand_in=False))
    columns = ["lr", *found.columns]
    return ComparisonTable(columns=columns, rows=rows, settings=("lr",), shown=tuple(columns), notes=(), legend="")


def status(condition, *intervals, metric="samples_per_second", **facts):
    comparison = table(*intervals, metric=metric, **facts)
    return judge_condition(parse_condition(condition), comparison, find_metric(metric)).status


@pytest.mark.parametrize(
    ("condition", "interval", "drift", "expected"),
    [
        ("slower", (0.96, 0.98), 0.0, FAILED),
        ("slower", (0.96, 0.98), 0.1, FAILED),  # the interval includes the drift
        ("slower", (0.80, 0.89), 0.1, FAILED),
        ("slower", (0.98, 1.01), 0.0, PASSED),  # within the margin of 3%
        ("slower", (0.96, 1.01), 0.0, NOT_KNOWN),
        ("slower", (0.98, 1.01), 0.1, NOT_KNOWN),  # the margin is below the drift
        ("slower:5%", (0.96, 0.98), 0.0, PASSED),
        ("slower:0.05", (0.96, 0.98), 0.0, PASSED),
        ("slower:5%", (0.90, 0.94), 0.0, FAILED),
        ("slower:5%", (0.90, 0.96), 0.0, NOT_KNOWN),
        ("slower:5%", (1.50, 1.60), 0.1, NOT_KNOWN),
        ("slower:10%", (0.95, 1.05), 0.1, NOT_KNOWN),  # the amount must exceed the drift
        ("slower:11%", (0.95, 1.05), 0.1, PASSED),
        ("slower:11%", (0.85, 1.05), 0.1, NOT_KNOWN),
        ("slower:20%", (0.82, 0.88), 0.1, PASSED),
        ("slower", (1.20, 1.30), 0.0, PASSED),
    ],
)
def test_speed_is_answered_by_where_the_interval_lies(condition, interval, drift, expected):
    assert status(condition, interval, drift=drift) is expected


def test_epochs_side_by_side_keep_their_tolerance():
    assert status("slower", (0.96, 0.985), tolerance=0.01) is FAILED
    assert status("slower", (0.96, 0.995), tolerance=0.01) is NOT_KNOWN
    assert status("slower:0.5%", (1.0, 1.1), tolerance=0.01) is NOT_KNOWN


def test_a_loss_of_contended_runs_must_be_one_that_they_can_show():
    assert status("slower", (0.5, 0.8), detectable=1.0) is NOT_KNOWN  # 0.65 times as fast, and a factor of 2 is seen
    assert status("slower", (0.2, 0.3), detectable=1.0) is FAILED
    assert status("slower", (0.99, 1.01), detectable=1.0) is PASSED


@pytest.mark.parametrize(
    ("condition", "metric", "interval", "expected"),
    [
        ("worse:val_accuracy:0.01", "val_accuracy", (-0.03, -0.02), FAILED),
        ("worse:val_accuracy:0.01", "val_accuracy", (-0.009, 0.02), PASSED),
        ("worse:val_accuracy:0.01", "val_accuracy", (-0.02, 0.0), NOT_KNOWN),
        ("worse:val_loss:0.1", "val_loss", (0.2, 0.3), FAILED),  # less is better
        ("worse:val_loss:0.1", "val_loss", (-0.3, 0.05), PASSED),
        ("worse:peak_memory_bytes:5%", "peak_memory_bytes", (1.10, 1.20), FAILED),
        ("worse:peak_memory_bytes:5%", "peak_memory_bytes", (0.5, 0.6), PASSED),
        ("worse:epoch_seconds:5%", "epoch_seconds", (0.8, 0.9), FAILED),  # the effect of times is a speedup
    ],
)
def test_worse_knows_the_direction_of_its_metric(condition, metric, interval, expected):
    assert status(condition, interval, metric=metric) is expected


@pytest.mark.parametrize(("interval", "said"), [((-0.03, -0.02), "0.0250 less"), ((0.02, 0.03), "0.0250 more")])
def test_a_difference_is_said_without_its_sign(interval, said):
    comparison = table(interval, metric="val_accuracy")
    line = judge_condition(parse_condition("worse:val_accuracy:0.01"), comparison, find_metric("val_accuracy")).line
    assert f"val_accuracy of sweep=b is {said} than sweep=a's [" in line


def test_one_pair_fails_all_must_pass_and_one_that_is_not_measured_leaves_it_open():
    fine, bad = (0.99, 1.01), (0.90, 0.92)
    assert status("slower", fine, bad) is FAILED
    assert status("slower", fine, fine) is PASSED
    assert status("slower", fine, None) is NOT_KNOWN
    assert status("slower", bad, None) is FAILED
    assert status("slower") is NOT_KNOWN


def test_pairs_that_agree_answer_together_what_each_leaves_open():
    wide = (0.95, 1.0)
    assert status("slower:4%", wide) is NOT_KNOWN
    answer = judge_condition(parse_condition("slower:4%"), table(*[wide] * 9), find_metric("samples_per_second"))
    assert answer.status is PASSED and "the mean over 9 pairs" in answer.line


def test_conditions_are_split_from_the_right():
    assert parse_condition("worse:val:f1:0.01").metric == "val:f1"
    assert parse_condition("worse:val:f1").metric == "val:f1"
    assert parse_condition("slower:2.5%").amount == 0.025


@pytest.mark.parametrize("text", ["", "faster", "worse", "worse:", "slower:", "slower:x", "slower:-5%", "slow:5%"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(UsageError, match="fail-if"):
        parse_condition(text)


def test_an_amount_that_the_metric_cannot_have_is_refused():
    with pytest.raises(UsageError, match="in the unit of val_accuracy"):
        status("worse:val_accuracy:1%", (0.0, 0.1), metric="val_accuracy")
    with pytest.raises(UsageError, match="below 1"):
        status("slower:5", (0.9, 1.0))
