"""A sweep in a notebook."""

import math

import pandas as pd
import pytest

from runmanager.errors import UsageError
from runmanager.records.states import Reason, Status
from runmanager.results.sweep import Sweep
from runmanager.results.write import write_tables


@pytest.fixture
def stored(sweep, timed):
    sweep.plan(*({"lr": 0.1, "device": device} for device in ("cpu", "cuda", "mps")))
    sweep.run({"lr": 0.1, "device": "cpu"}, name="a")
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    sweep.run({"lr": 0.1, "device": "cuda"}, [], name="b", **skipped)
    return sweep


def test_the_frames_have_the_columns_and_values_of_the_files(stored):
    write_tables(stored.paths)
    read = Sweep(stored.paths.root)
    for frame, path in (
        (read.runs, stored.paths.results("csv")),
        (read.epochs, stored.paths.epochs_csv),
        (read.compare(), stored.paths.comparison("csv")),
    ):
        pd.testing.assert_frame_equal(frame, pd.read_csv(path), check_dtype=False)


def test_columns_have_their_types_and_what_is_missing_is_nan(stored):
    runs, epochs = Sweep(str(stored.paths.root)).runs, Sweep(stored.paths.root).epochs
    assert runs["epochs"].dtype == "float64"  # a pending cell has none
    assert runs["val_loss"].dtype == runs["data_seconds"].dtype == "float64"
    assert math.isnan(runs["batch_size"][0])
    assert runs["contended"].tolist()[0] is False
    assert runs["contended"].isna().tolist() == [False, True, True]
    assert epochs["epoch"].dtype == epochs["samples"].dtype == "int64"
    assert epochs["warmup"].dtype == "bool"
    assert list(runs["status"]) == ["finished", "skipped", "pending"]


def test_compare_takes_an_axis_and_a_baseline(stored):
    frame = Sweep(stored.paths.root).compare(axis="device", baseline="cuda")
    assert list(frame["candidate"]) == ["cpu", "mps"]
    assert set(frame["baseline"]) == {"cuda"}
    with pytest.raises(UsageError, match="The axis must be a setting"):
        Sweep(stored.paths.root).compare(axis="nothing")


def test_a_notebook_shows_the_rounded_table(stored):
    shown = Sweep(stored.paths.root)._repr_html_()
    assert "device_unavailable" in shown
    assert "N/A" in shown
    assert repr(Sweep(stored.paths.root)).endswith("3 runs")


def test_compare_takes_a_metric_and_any_axis(stored):
    frame = Sweep(stored.paths.root).compare("any", metric="epoch_seconds")
    assert set(frame["metric"]) == {"epoch_seconds"}
    assert {"baseline_value", "speedup"} <= set(frame.columns)
    with pytest.raises(UsageError, match="did you mean val_loss"):
        Sweep(stored.paths.root).compare(metric="valloss")


def test_frames_of_an_empty_sweep_have_their_columns(sweep):
    sweep.plan()
    read = Sweep(sweep.paths.root)
    assert list(read.runs.columns)[:3] == ["run", "status", "reason"]
    assert len(read.epochs) == len(read.compare()) == 0


def test_a_folder_that_is_no_sweep_is_refused(tmp_path):
    with pytest.raises(UsageError, match="must be a sweep's folder"):
        Sweep(tmp_path)
