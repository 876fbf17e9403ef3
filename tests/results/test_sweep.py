"""A sweep in Python and in a notebook."""

import json
import math
import re
from pathlib import Path

import msgspec
import pandas as pd
import pytest
from msgspec.structs import replace

from runmanager.errors import UsageError
from runmanager.records.run.status import Reason, Status
from runmanager.results.result_files import write_tables
from runmanager.results.sweep import Sweep


@pytest.fixture
def stored(sweep, timed):
    sweep.plan(*({"lr": 0.1, "device": device} for device in ("cpu", "cuda", "mps")))
    sweep.run({"lr": 0.1, "device": "cpu"}, name="a")
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    sweep.run({"lr": 0.1, "device": "cuda"}, [], name="b", **skipped)
    return sweep


def test_dataframes_equal_the_files(stored):
    write_tables(stored.paths)
    read = Sweep(stored.paths.root)
    for frame, path in (
        (read.runs, stored.paths.results("csv")),
        (read.epochs, stored.paths.epochs_csv),
        (read.compare(), stored.paths.comparison("csv")),
    ):
        pd.testing.assert_frame_equal(frame, pd.read_csv(path), check_dtype=False)


def test_columns_have_suitable_types_and_missing_values_are_nan(stored):
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
    with pytest.raises(UsageError, match="`axis` must be a setting"):
        Sweep(stored.paths.root).compare(axis="nothing")


def test_a_notebook_shows_answers_then_failures_then_the_rounded_table(stored):
    stored.run({"lr": 0.1, "device": "mps"}, [], name="c", status=Status.FAILED, message="it is <big>")
    shown = Sweep(stored.paths.root)._repr_html_()
    positions = [shown.index(text) for text in ("The best val_accuracy is", "it is &lt;big&gt;", ">accuracy</th>")]
    assert positions == sorted(positions) and "<big>" not in shown
    assert "N/A" in shown and "3 runs: 1 finished, 1 skipped, 1 failed." in shown


def test_the_html_styles_only_itself_and_inherits_colours(stored):
    (style,) = re.findall(r"<style>(.*?)</style>", Sweep(stored.paths.root)._repr_html_(), re.S)
    selectors = [each for rule in re.findall(r"([^{}]+)\{", style) for each in rule.split(",")]
    assert selectors and all(each.strip().startswith(".runmanager-sweep ") for each in selectors)
    assert not re.findall(r"#[0-9a-f]{3}|background|(?<!-)color: (?!inherit)", style)


def test_a_large_sweep_shows_its_first_rows_and_the_total_count(sweep):
    for number in range(30):
        fields = {"status": Status.FAILED} if number < 12 else {}
        sweep.run({"lr": number}, name=f"n{number}", **fields)
    read = Sweep(sweep.paths.root)
    shown = read._repr_html_()
    assert shown.count("<tr>") == 2 + 10 + 20
    assert "The first 10 of 12 unsuccessful runs; <code>.runs</code> has all." in shown
    assert "The first 20 of 30 rows; <code>.table()</code> has all." in shown
    assert len(read.runs) == len(read.table()) == 30


def test_repr_shows_the_answers(stored):
    lines = repr(Sweep(stored.paths.root)).splitlines()
    assert lines[0] == f"Sweep({str(stored.paths.root)!r})"
    assert lines[-1] == "  3 runs: 1 finished, 1 skipped, 1 pending."
    assert [line.strip() for line in lines[1:]] == Sweep(stored.paths.root).answers


def test_a_sweep_is_unchanged_until_it_is_refreshed(stored):
    read = Sweep(stored.paths.root)
    assert len(read.answers) and len(read.runs) == 3
    stored.run({"lr": 0.1, "device": "mps"}, name="c")
    assert list(read.runs["status"]).count("finished") == 1
    assert read.refresh() is read
    assert list(read.runs["status"]).count("finished") == 2


@pytest.fixture
def seeded(sweep, timed):
    for batch_size, seconds in ((100, 2.0), (200, 1.0)):
        for seed in (1, 2, 3):
            sweep.run({"batch_size": batch_size, "seed": seed}, timed([9.0] + [seconds + 0.1 * seed] * 6))
    return Sweep(sweep.paths.root)


def test_a_table_has_means_and_deviations_over_seeds_or_each_run(seeded):
    frame = seeded.table()
    assert list(frame["batch_size"]) == [200, 100] and list(frame["seeds"]) == [3, 3]
    assert frame["epoch_seconds"].tolist() == pytest.approx([1.2, 2.2])
    assert frame["epoch_seconds_std"].tolist() == pytest.approx([0.1, 0.1])
    assert frame["epoch_seconds"].dtype == "float64"
    each = seeded.table(each=True, columns=["seed", "epoch_seconds"], where="batch_size==200", sort="epoch_seconds")
    assert list(each.columns) == ["seed", "epoch_seconds"] and list(each["seed"]) == [1, 2, 3]
    pivot = seeded.table(pivot="batch_size:seed")
    assert pivot["seed=2"].tolist() == pytest.approx([2.2, 1.2])


@pytest.fixture
def logging(sweep, timed):
    """Two cells with two seeds each, which log `f1, macro`; the second cell counts tokens."""
    for lr, f1 in ((0.1, 0.75), (0.2, 0.25)):
        for seed in (0, 1):
            epochs = [
                msgspec.structs.replace(
                    epoch,
                    metrics={"f1, macro": f1 + 0.125 * seed, "loss": 5.0},
                    units={"tokens": 100} if lr == 0.2 else msgspec.UNSET,
                )
                for epoch in timed([9.0, 2.0, 2.0])
            ]
            sweep.run({"lr": lr, "seed": seed}, epochs)
    return Sweep(sweep.paths.root)


def test_logged_metrics_are_columns_of_all_tables(logging):
    assert list(logging.runs.columns)[-3:] == ["f1, macro", "metrics.loss", "tokens_per_second"]
    assert list(logging.epochs.columns)[-3:] == ["f1, macro", "metrics.loss", "tokens"]
    assert logging.runs["f1, macro"].dtype == logging.runs["tokens_per_second"].dtype == "float64"
    assert logging.runs["tokens_per_second"].isna().tolist() == [row == 0.1 for row in logging.runs["lr"]]
    frame = logging.table(where="`f1, macro` > 0.5", columns=["lr", "f1, macro"])
    assert list(frame.columns) == ["lr", "f1, macro", "f1, macro_std"] and frame["f1, macro"].tolist() == [0.8125]
    assert list(logging.table(sort="f1, macro")["lr"]) == [0.1, 0.2]
    assert logging.table(pivot="lr:seed:`f1, macro`")["seed=1"].tolist() == [0.875, 0.375]


def test_the_deviation_of_a_metric_does_not_hide_a_metric_of_that_name(sweep, timed):
    for seed, f1 in enumerate((0.25, 0.75)):
        epochs = [msgspec.structs.replace(each, metrics={"f1": f1, "f1_std": 9.0}) for each in timed([9.0, 2.0])]
        sweep.run({"lr": 0.1, "seed": seed}, epochs)
    (row,) = Sweep(sweep.paths.root).table(columns=["f1", "f1_std"]).to_dict("records")
    assert (row["f1"], row["f1_std"], row["f1_std_std"]) == (0.5, 9.0, 0.0)
    assert row["seeds.f1_std"] == pytest.approx(0.125**0.5)


def test_written_files_have_logged_metrics(logging):
    paths = logging.paths
    write_tables(paths)
    for frame, path in ((logging.runs, paths.results("csv")), (logging.epochs, paths.epochs_csv)):
        pd.testing.assert_frame_equal(frame, pd.read_csv(path), check_dtype=False)
    assert [row["metrics.loss"] for row in json.loads(paths.results("json").read_text())] == [5.0] * 4
    for file in (paths.results("md"), paths.results("html"), paths.report):
        assert "f1, macro" in file.read_text() and "tokens_per_second" in file.read_text()


def test_the_best_cell_has_its_certainty_and_its_run(seeded):
    best = seeded.best("epoch_seconds")
    assert best.settings == {"batch_size": 200} and float(best.value) == pytest.approx((1.1 * 1.2 * 1.3) ** (1 / 3))
    assert best.run.record.config["seed"] == 1
    start = "The best epoch_seconds is 1.197 ± 0.100 (geometric mean, n=3) with batch_size=200.\nNext is"
    assert repr(best).startswith(start)
    assert seeded.best("epoch_seconds", where="batch_size==100").settings == {"batch_size": 100}


def test_errors_name_arguments_instead_of_command_options(seeded):
    for call, message in (
        (lambda: seeded.table(where="lrr<1"), "`where` must name columns or settings, got 'lrr'"),
        (lambda: seeded.table(pivot="batch_size:seed", each=True), "`pivot` must go without `each`"),
        (lambda: seeded.best("speed"), "`metric` must be a metric of the runs, got 'speed'"),
        (lambda: seeded.compare("any", 100), "`baseline` must belong to one axis"),
        (lambda: seeded.compare("batch_size", margin=0.0), "`margin` must be above 0"),
        (lambda: seeded.compare("batch_size", drift=2.0), "`drift` must be at least 0 and below 1"),
    ):
        with pytest.raises(UsageError) as rejected:
            call()
        assert str(rejected.value).startswith(message)


def test_a_plot_can_be_saved_and_defaults_to_the_first_figure(seeded, tmp_path):
    assert seeded.plot("curves").axes[0].get_xlabel() == "epoch"
    seeded.plot().savefig(tmp_path / "first.svg")
    assert (tmp_path / "first.svg").read_text().count("<svg") == 1
    assert next(iter(seeded.figures)) != "curves" and seeded.figures["curves"].caption


def test_an_unknown_plot_is_rejected_with_the_valid_names(seeded, sweep, make_sweep):
    with pytest.raises(
        UsageError, match=r"one that the sweep has \(.*curves.*\), got 'curve'; did you mean 'curves'\?"
    ):
        seeded.plot("curve")
    empty = make_sweep("empty")
    empty.plan({"lr": 1})
    with pytest.raises(UsageError, match="must have data to show"):
        Sweep(empty.paths.root).plot()


def test_a_sweep_is_found_by_name_under_outputs(make_sweep, tmp_path, monkeypatch):
    make_sweep("outputs/named").run({"lr": 1})
    monkeypatch.chdir(tmp_path)
    assert Sweep("named").paths.root == Path("outputs/named")


def test_compare_takes_a_metric_and_any_axis(stored):
    frame = Sweep(stored.paths.root).compare("any", metric="epoch_seconds")
    assert set(frame["metric"]) == {"epoch_seconds"}
    assert {"baseline_value", "speedup"} <= set(frame.columns)
    with pytest.raises(UsageError, match="did you mean 'val_loss'"):
        Sweep(stored.paths.root).compare(metric="valloss")


def test_dataframes_of_an_empty_sweep_have_columns(sweep):
    sweep.plan()
    read = Sweep(sweep.paths.root)
    assert list(read.runs.columns)[:3] == ["run", "status", "reason"]
    assert len(read.epochs) == len(read.compare()) == 0


def test_a_folder_without_a_sweep_is_rejected(tmp_path):
    with pytest.raises(UsageError, match="must be a sweep's folder"):
        Sweep(tmp_path)


def test_logged_metrics_are_compared_and_ranked(sweep, timed):
    for lr in (0.1, 0.2):
        for seed in range(3):
            values = [lr + seed * seed * lr / 100 + (1 if number == 2 else 0) for number in range(1, 7)]
            epochs = zip(timed([1.0] * 6), values, strict=True)
            sweep.run({"lr": lr, "seed": seed}, [replace(each, metrics={"zeal": value}) for each, value in epochs])
    read = Sweep(sweep.paths.root)
    (verdict,) = read.compare("lr", metric="zeal", better="min")["verdict"]
    assert verdict == "worse"
    assert read.best("zeal", better="max").settings == {"lr": 0.2}
    assert float(read.best("zeal", better="min", at="best").value) < float(read.best("zeal", better="max").value)
    assert float(read.best("zeal", better="max", at="best").value) > 1
    for call in (read.best, lambda metric: read.compare("lr", metric=metric)):
        with pytest.raises(UsageError, match="`better` must be max or min for 'zeal'"):
            call("zeal")
