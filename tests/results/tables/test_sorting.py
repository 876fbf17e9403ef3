"""Tests of the order in which people see the rows of a results table."""

import dataclasses

import msgspec
import pytest

from runmanager.results.tables.results_table import result_rows
from runmanager.results.tables.sorting import best_first, ranked_column


def test_the_metric_that_a_command_asked_for_ranks_the_rows(contents, timed):
    f1 = {0.1: 0.2, 0.01: 0.9, 0.001: 0.5}
    runs = [
        (
            {"lr": lr, "device": "cpu"},
            [
                msgspec.structs.replace(each, val_accuracy=1 - value, metrics={"f1": value})
                for each in timed([9.0, 2.0])
            ],
            {},
        )
        for lr, value in f1.items()
    ]
    table = result_rows(contents(*runs), None)
    by_f1 = dataclasses.replace(table, metric="f1")
    assert ranked_column(table) == "val_accuracy"
    assert [row["lr"] for row in best_first(table).rows] == [0.1, 0.001, 0.01]
    assert ranked_column(by_f1) == "f1"
    assert [row["lr"] for row in best_first(by_f1).rows] == [0.01, 0.001, 0.1]
    by_time = dataclasses.replace(table, metric="epoch_seconds")
    assert ranked_column(by_time) == "epoch_seconds"
    assert ranked_column(dataclasses.replace(table, metric="unknown")) == "val_accuracy"


@pytest.mark.parametrize(("names", "first"), [(("CPU", "CPU"), 0.1), (("CPU", "GPU"), 0.2)])
def test_rows_are_ordered_by_time_where_they_ran_on_several_devices(contents, timed, host, names, first):
    runs = []
    for config, name, seconds, accuracy in (
        ({"lr": 0.1, "device": "auto"}, names[0], 3.0, 0.9),
        ({"lr": 0.2, "device": "cpu"}, names[1], 2.0, 0.8),
    ):
        epochs = [msgspec.structs.replace(each, val_accuracy=accuracy) for each in timed([9.0, seconds])]
        runs.append((config, epochs, {"environment": msgspec.structs.replace(host, device_name=name)}))
    assert best_first(result_rows(contents(*runs), None)).rows[0]["lr"] == first
