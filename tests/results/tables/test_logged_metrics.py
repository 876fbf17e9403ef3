"""Logged metrics and units in the results and epochs tables: columns, values, queries, seeds, rendering."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from rich.console import Console

from runmanager.errors import UsageError
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import SweepContents
from runmanager.results.load.loader import read_results
from runmanager.results.report.html_table import to_html
from runmanager.results.table_model.columns import Table
from runmanager.results.table_model.formatting import human_columns, human_field
from runmanager.results.tables import text_formats
from runmanager.results.tables.query import TableQuery
from runmanager.results.tables.results_table import epoch_rows, result_rows
from runmanager.results.tables.shown_rows import collapse_seeds
from runmanager.results.tables.terminal import render_results

CONFIG = {"lr": 0.01, "batch_size": 100, "num_workers": 0, "device": "cpu"}


def logging(
    epochs: Sequence[EpochRecord],
    metrics: Sequence[Mapping[str, float | None] | None],
    units: Sequence[Mapping[str, int] | None] = (),
) -> list[EpochRecord]:
    """Epochs with what their program logged in each; None for nothing."""
    return [
        msgspec.structs.replace(
            epoch,
            metrics=msgspec.UNSET if logged is None else logged,
            units=msgspec.UNSET if counted is None else counted,
        )
        for epoch, logged, counted in zip(epochs, metrics, units or [None] * len(epochs), strict=True)
    ]


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def printed(table: Table, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(render_results(table, width=width))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def stored(sweep: Any, timed: Callable[..., list[EpochRecord]]) -> Any:
    """Two runs: one logs four metrics and tokens, the other one metric more and no tokens."""
    sweep.run(
        CONFIG,
        logging(
            timed([9.0, 2.0, 4.0, 1.0]),
            [{"val/f1": 0.1}, {"val/f1": 0.2, "fid": 30.0, "loss": 7.0}, {"val/f1": 0.25, "lr": 0.5}, None],
            [{"tokens": 900}, {"tokens": 100}, {"tokens": 100}, {"tokens": 0}],
        ),
        name="a",
    )
    sweep.run(
        CONFIG | {"lr": 0.1}, logging(timed([9.0, 3.0]), [{"psnr": 9.0}, {"val/f1": 0.75, "fid": None}]), name="b"
    )
    return sweep


def test_results_csv_has_the_last_value_of_each_metric_and_the_median_rate_of_each_unit(stored: Any) -> None:
    table = result_rows(*read_results(stored.paths))
    header = text_formats.to_csv(table).splitlines()[0].split(",")
    assert header[header.index("overall_samples_per_second") :] == [
        *("overall_samples_per_second", "val/f1", "fid", "metrics.loss", "metrics.lr", "psnr", "tokens_per_second"),
    ]
    first, second = read_csv(text_formats.to_csv(table))
    logged = ("val/f1", "fid", "metrics.loss", "metrics.lr", "psnr", "tokens_per_second")
    # The measured epochs with tokens make 100 in 2 s and 100 in 4 s: the median of 50 and 25 is 37.5.
    assert [first[name] for name in logged] == ["0.25", "30.0", "7.0", "0.5", "", "37.5"]
    # The last value of `fid` was not finite.
    assert [second[name] for name in logged] == ["0.75", "", "", "", "9.0", ""]
    assert (first["loss"], first["lr"]) == ("0.25", "0.01")


def test_epochs_csv_has_metrics_and_counts_after_the_settings(stored: Any) -> None:
    text = text_formats.to_csv(epoch_rows(*read_results(stored.paths)))
    assert text.splitlines()[0].endswith(
        "tracking_seconds,lr,batch_size,num_workers,device,val/f1,fid,metrics.loss,metrics.lr,psnr,tokens"
    )
    rows = read_csv(text)
    logged = ("val/f1", "fid", "metrics.loss", "metrics.lr", "psnr", "tokens")
    assert [[row[name] for name in logged] for row in rows] == [
        ["0.1", "", "", "", "", "900"],
        ["0.2", "30.0", "7.0", "", "", "100"],
        ["0.25", "", "", "0.5", "", "100"],
        ["", "", "", "", "", "0"],
        ["", "", "", "", "9.0", ""],
        ["0.75", "", "", "", "", ""],
    ]


def test_runs_without_logged_metrics_have_the_columns_of_before(
    sweep: Any, timed: Callable[..., list[EpochRecord]]
) -> None:
    sweep.run(CONFIG, timed([9.0, 2.0]))
    results, epochs = result_rows(*read_results(sweep.paths)), epoch_rows(*read_results(sweep.paths))
    assert results.columns[-1] == "overall_samples_per_second"
    assert epochs.columns[-1] == "device"
    assert (results.logged, epochs.logged) == ((), ())
    assert "logged" not in results.legend


def test_a_run_without_a_metric_and_a_pending_cell_show_na(stored: Any) -> None:
    stored.plan(CONFIG, CONFIG | {"lr": 0.1}, CONFIG | {"lr": 0.2})
    table = result_rows(*read_results(stored.paths))
    texts = {row["run"]: [human_field(table, row, name) for name in ("val/f1", "fid")] for row in table.rows}
    assert [texts["a"], texts["b"]] == [["0.2500", "30.00"], ["0.7500", "N/A"]]
    assert [each for name, each in texts.items() if name not in "ab"] == [["N/A", "N/A"]]
    assert "Logged metrics: the last value." in table.legend
    marked = "`metrics.` marks those that have the name of another column or a setting: metrics.loss, metrics.lr."
    assert marked in table.legend


@pytest.fixture
def grid(contents: Callable[..., SweepContents], steady: Callable[..., Any]) -> SweepContents:
    """Two learning rates with two seeds; `odd` was declared to be better if larger, `val f1` and `fid` have names."""

    def run(lr: float, seed: int, f1: float) -> Any:
        epochs = steady(2.0)
        metrics = {"val f1": f1, "val/f1": f1, "fid": 10 * f1, "odd": -f1, "f1, macro": f1, "precision": f1}
        logged = logging(epochs, [metrics] * len(epochs), [{"tokens": 100}] * len(epochs))
        return {"lr": lr, "seed": seed, "device": "cpu"}, logged, {"better": {"odd": "max"}}

    return contents(run(0.1, 0, 0.25), run(0.1, 1, 0.75), run(0.2, 0, 0.5), run(0.2, 1, 0.625))


def shown(grid: SweepContents, *, collapses: bool = False, **options: Any) -> Table:
    return TableQuery.parse(**options).of_sweep(grid, None, collapses=collapses)


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("val/f1 > 0.5", 2),
        ("`val f1` > 0.5", 2),
        ("`f1, macro` <= 0.5 and lr==0.1", 1),
        ("fid == null", 0),
        ("tokens_per_second == 50", 4),
    ],
)
def test_conditions_take_metrics(grid: SweepContents, where: str, count: int) -> None:
    assert len(shown(grid, where=where).rows) == count


def test_a_misspelt_metric_is_refused_with_the_nearest_name(grid: SweepContents) -> None:
    with pytest.raises(UsageError, match=r"`--where` must name columns or settings.*did you mean 'val/f1'\?"):
        shown(grid, where="val/f2 > 0.5")
    with pytest.raises(UsageError, match=r"`--sort` must name a column.*did you mean 'precision'\?"):
        shown(grid, sort="precison")


@pytest.mark.parametrize(
    ("sort", "best"),
    [
        ("val/f1", 0.75),  # larger is better by its name
        ("`f1, macro`", 0.75),
        ("fid", 0.25),  # smaller is
        ("odd", 0.25),  # larger is, as declared
    ],
)
def test_metrics_sort_by_declaration_or_name(grid: SweepContents, sort: str, best: float) -> None:
    assert shown(grid, sort=sort).rows[0]["val f1"] == best


def test_sorting_takes_a_declared_direction_and_asks_where_none_is_known(
    contents: Callable[..., SweepContents], steady: Callable[..., Any]
) -> None:
    def first(sort: str, *declared: Mapping[str, str], better: str | None = None) -> Any:
        logged = [{"fid": float(lr), "zeal": float(lr), "loss": float(lr)} for lr in range(len(declared))]
        runs = [
            ({"lr": lr}, logging(steady(1.0 + lr, 1), [metrics] * 2), {"better": better})
            for (lr, metrics), better in zip(enumerate(logged), declared, strict=True)
        ]
        return shown(contents(*runs), sort=sort, better=better).rows[0]["lr"]

    assert first("fid", {"fid": "max"}, {"fid": "max"}) == 1
    assert first("fid", {"fid": "max"}, {}) == 1
    with pytest.raises(UsageError, match=r"for 'fid', which the runs declare differently, got max \(.*\) and min"):
        first("fid", {"fid": "max"}, {"fid": "min"})
    with pytest.raises(UsageError, match="`--better` must be max or min for 'zeal', whose name does not tell"):
        first("zeal", {}, {})
    assert [first("zeal", {}, {}, better=word) for word in ("max", "smaller")] == [1, 0]
    # A declaration means the logged metric and the column of the same name, as in `best`.
    assert first("metrics.loss", {"loss": "max"}, {}) == 1
    table = shown(contents(({"lr": 0}, steady(1.0, 1), {"better": {"loss": "max"}})), sort="loss")
    assert table.directions.known("loss") is True


def test_better_is_for_sorting_by_a_metric(grid: SweepContents) -> None:
    assert shown(grid, sort="val/f1", better="min").rows[0]["val/f1"] == 0.25
    assert shown(grid, sort="loss", better="max").rows[0]["loss"] is not None
    for sort in ("lr", "epoch_seconds", "run"):
        with pytest.raises(UsageError, match="`--better` must go with a metric of epochs, got"):
            shown(grid, sort=sort, better="max")
    with pytest.raises(UsageError, match="`--better` must go with `--sort`, got none; name the metric"):
        shown(grid, better="max")
    with pytest.raises(UsageError, match="`--better` must be one of max, min, larger, smaller, got"):
        shown(grid, sort="loss", better="up")


def test_contradictory_directions_are_a_note(
    contents: Callable[..., SweepContents], steady: Callable[..., Any]
) -> None:
    runs = [
        ({"lr": lr}, logging(steady(1.0, 1), [{"fid": 1.0}] * 2), {"better": {"fid": word}, "name": word * 2})
        for lr, word in enumerate(("max", "min"))
    ]
    notes = result_rows(contents(*runs), None).notes
    assert [note for note in notes if "fid" in note] == [
        "The runs declare different directions of fid: max (maxmax) and min (minmin)."
    ]


def test_chosen_columns_and_pivots_take_metrics(grid: SweepContents) -> None:
    table = shown(grid, columns="lr,`f1, macro`,val/f1,tokens_per_second")
    assert table.columns == ["lr", "f1, macro", "val/f1", "tokens_per_second"]
    pivoted = shown(grid, pivot="lr:seed:val/f1")
    assert [[row["seed=0"], row["seed=1"]] for row in pivoted.rows] == [[0.25, 0.75], [0.5, 0.625]]
    counted = shown(grid, pivot="device:lr:fid")
    assert [human_field(counted, counted.rows[0], name) for name in counted.columns[1:3]] == [
        "5.000 (n=2)",
        "5.625 (n=2)",
    ]
    assert "| 5.625 (n=2) |" in text_formats.to_markdown(counted)


def test_seeds_of_a_cell_have_means_and_deviations_of_metrics(grid: SweepContents) -> None:
    table = collapse_seeds(result_rows(grid, None))
    (row,) = (row for row in table.rows if row["lr"] == 0.1)
    # The mean of 0.25 and 0.75 is 0.5, and the deviation is 0.5 / sqrt(2).
    assert (row["val/f1"], row["val/f1"].deviation) == (0.5, pytest.approx(0.5 / 2**0.5))
    assert human_field(table, row, "val/f1") == "0.5000 ± 0.3536"
    assert human_field(table, row, "tokens_per_second") == "50.00 ± 0.00"
    (first, *_) = shown(grid, collapses=True, sort="val/f1").rows
    assert first["lr"] == 0.2


def test_a_failed_seed_does_not_count_in_the_mean_of_a_metric(
    contents: Callable[..., SweepContents], steady: Callable[..., Any]
) -> None:
    runs = [
        (
            {"lr": 1, "seed": seed},
            logging(steady(1.0, 1), [None, {"f1": value}]),
            {"status": Status.FAILED} if seed == 2 else {},
        )
        for seed, value in ((0, 0.5), (1, None), (2, 0.9))
    ]
    table = collapse_seeds(result_rows(contents(*runs), None))
    # Of two finished seeds one has a value.
    assert (table.rows[0]["f1"], human_field(table, table.rows[0], "f1")) == (0.5, "0.5000 (n=1)")


def test_people_see_metrics_between_the_losses_and_the_memory(grid: SweepContents) -> None:
    table = result_rows(grid, None)
    names = human_columns(table)
    assert names[names.index("val_loss") + 1 :][:6] == ["val f1", "val/f1", "fid", "odd", "f1, macro", "precision"]
    assert names.index("samples_per_second") + 1 == names.index("tokens_per_second")
    for text in (text_formats.to_markdown(table), text_formats.to_latex(table), to_html(table)):
        assert "val f1" in text and "0.2500" in text


def test_the_first_metric_stays_longer_than_the_time_of_an_epoch(grid: SweepContents) -> None:
    text, narrower = (printed(collapse_seeds(result_rows(grid, None)), width=width) for width in (45, 35))
    assert max(map(len, text.splitlines())) <= 45
    heading, narrower_heading = text.split("─")[0], narrower.split("─")[0]
    assert "f1" in heading and "samples" in heading and "epoch" not in heading
    assert "± 0.3536" in text
    assert "f1" not in narrower_heading and "samples" in narrower_heading


def test_metrics_are_omitted_from_a_narrow_terminal_after_the_losses(grid: SweepContents) -> None:
    text = printed(collapse_seeds(result_rows(grid, None)))
    assert max(map(len, text.splitlines())) <= 80
    omitted = " ".join(text.split("Omitted for lack of space:")[1].split())
    assert omitted.startswith("val_loss, loss, accuracy, epochs, tokens_per_second, precision, f1, macro.")
    assert "0.5000" in text and "± 0.3536" in text
    wide = printed(result_rows(grid, None), width=250)
    assert "Omitted" not in wide and "precision" in wide
