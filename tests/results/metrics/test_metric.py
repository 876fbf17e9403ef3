"""Metrics as people read them: values, effects and the ends of intervals."""

import math

import pytest

from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.metrics.metric_lookup import find_metric


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("peak_memory_bytes", 3 * 2**20, "3.0 MiB"),
        ("val_accuracy", 0.987654, "0.9877"),
        ("samples_per_second", 12345.6, "12,350"),
        ("time_to_accuracy=0.9", 12.3456, "12.35"),
    ],
)
def test_values_have_the_unit_of_their_column(name, value, text):
    assert find_metric(name).format_value(value) == text


def test_the_default_of_a_metric_is_a_column_of_its_own():
    assert not THROUGHPUT.rounded and THROUGHPUT.at == "last"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("samples_per_second", 1.0, "1.000"),
        ("samples_per_second", 1.23456, "1.235"),
        ("samples_per_second", 1.00001, "1.00001"),
        ("samples_per_second", 1 - 1e-7, "0.9999999"),
        ("samples_per_second", 1 + 2**-50, "1.000000000000001"),
        ("samples_per_second", 1 + 2**-52, "1.0000000000000002"),
        ("samples_per_second", math.inf, "inf"),
        ("val_accuracy", 0.0, "0.0000"),
        ("val_accuracy", -0.00001, "-0.00001"),
        ("val_accuracy", 1e-15, "0.000000000000001"),
        ("val_accuracy", 1e-16, "1e-16"),
        ("val_accuracy", 1e-20, "1e-20"),
        ("val_loss", 1e-20, "1e-20"),
    ],
)
def test_no_end_of_an_interval_is_rounded_to_no_effect(name, value, text):
    assert find_metric(name).format_ends(value, 2.0) == (text, find_metric(name).format_effect(2.0))
    assert find_metric(name).format_ends(-2.0, value) == (find_metric(name).format_effect(-2.0), text)
