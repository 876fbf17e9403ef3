"""Queries on a results table: rows, order, columns, pivots, and their LaTeX."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from runmanager.errors import UsageError
from runmanager.records.run.run_record import Environment
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import SweepContents
from runmanager.results.report.html_table import to_html
from runmanager.results.table_model.columns import Row, Table
from runmanager.results.table_model.formatting import human_field
from runmanager.results.tables import text_formats as writers
from runmanager.results.tables.query import TableQuery


@pytest.fixture
def grid(contents: Callable[..., SweepContents], steady: Callable[..., Any]) -> SweepContents:
    """Two batch sizes on two devices: the larger one with two seeds on CPU, and a failed run on CUDA."""
    shared = {"epochs": 6, "model": {"name": "cnn"}, "optimizer": {"name": "sgd", "momentum": 0.9}}

    def run(batch_size: int, device: str, seconds: float, seed: int = 0, **fields: Any) -> Any:
        return {"lr": 0.01, "batch_size": batch_size, "device": device, "seed": seed, **shared}, steady(seconds), fields

    return contents(
        run(100, "cpu", 4.0),
        run(100, "cuda", 2.0),
        run(1000, "cpu", 1.0),
        run(1000, "cpu", 3.0, seed=1),
        run(1000, "cuda", 0.5, status=Status.FAILED),
    )


def shown(grid: SweepContents, *, collapses: bool = False, **options: Any) -> Table:
    return TableQuery.parse(**options).of_sweep(grid, None, collapses=collapses)


def values(table: Table, column: str) -> list[Any]:
    return [row[column] for row in table.rows]


def test_only_rows_that_match_the_condition_are_shown(grid: SweepContents) -> None:
    table = shown(grid, where="device==cpu and batch_size>100")
    assert values(table, "epoch_seconds") == [1.0, 3.0]
    assert table.notes[0] == "2 of 5 runs match device==cpu and batch_size>100."


def test_the_note_on_contention_counts_the_shown_rows(
    contents: Callable[..., SweepContents], steady: Callable[..., Any]
) -> None:
    loaded = {"environment": Environment(outside_cpu_share=0.9)}
    runs = contents(*(({"lr": lr}, steady(1.0), loaded if lr < 3 else {}) for lr in (1, 2, 3)))
    contended = " contended: other load was on the machine, so times may be too long."
    assert shown(runs, where="lr>1").notes == ("2 of 3 runs match lr>1.", f"1 of 2 runs was{contended}")
    assert shown(runs, where="lr==3").notes == ("1 of 3 runs matches lr==3.",)


def test_a_condition_without_matches_lists_the_existing_values(
    contents: Callable[..., SweepContents], steady: Callable[..., Any]
) -> None:
    devices = [None, *(f"cuda:{number}" for number in range(6))]
    runs = contents(*(({"lr": lr, "device": device}, steady(1.0 + lr), {}) for lr, device in enumerate(devices)))
    (note,) = shown(runs, where="device==gpu or lr>99 or epoch_seconds<0").notes
    assert note.endswith(
        " Here device is cuda:0, cuda:1, cuda:2, cuda:3, cuda:4 or 2 others; lr is 0 to 6; "
        "epoch_seconds is 1.000 to 7.000."
    )


def test_settings_are_shown_as_typed_and_only_measured_values_are_missing(
    contents: Callable[..., SweepContents], steady: Callable[..., Any]
) -> None:
    rows = [({"lr": 1, "micro_batch": size, "graphs": size is None}, steady(1.0), {}) for size in (None, 8)]
    table = shown(contents(*rows), columns="micro_batch,graphs,num_parameters,contended")
    read = [[human_field(table, row, name) for name in table.shown] for row in table.rows]
    assert read == [["null", "true", "N/A", "false"], ["8", "false", "N/A", "false"]]
    assert "| null | true | N/A | false |" in writers.to_markdown(table)
    assert r"null & true & N/A & false \\" in writers.to_latex(table)
    assert ">null</td>" in to_html(table)
    assert writers.to_csv(table).splitlines()[1:] == [",True,,False", "8,False,,False"]


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("optimizer.momentum==0.9", 5),
        ("model==cnn", 5),
        ("model.name!=cnn", 0),
        ("settings.epochs==6 and epochs==6", 5),
        ("seed==1", 1),
        ("status==failed", 1),
        ("val_accuracy>0.5 and device_name=='Zen 4'", 5),
    ],
)
def test_conditions_accept_settings_that_do_not_vary(grid: SweepContents, where: str, count: int) -> None:
    assert len(shown(grid, where=where).rows) == count


def test_settings_used_only_in_a_condition_are_not_shown(grid: SweepContents) -> None:
    assert "optimizer.momentum" not in writers.human_columns(shown(grid, where="optimizer.momentum==0.9"))


def test_selected_columns_are_used_in_every_format(grid: SweepContents) -> None:
    table = shown(grid, columns="batch_size, reason,optimizer,val_loss")
    names = ["batch_size", "reason", "optimizer.name", "val_loss"]
    assert writers.to_csv(table).splitlines()[0] == ",".join(names)
    assert list(json.loads(writers.to_json(table))[0]) == names
    assert writers.human_columns(table) == names  # including the empty one
    assert "Times" in shown(grid, columns="run,epoch_seconds").legend
    assert "Times" not in table.legend, "no column is a time"


def test_seeds_are_one_row_unless_the_query_names_the_seed(grid: SweepContents) -> None:
    assert len(shown(grid, collapses=True).rows) == 4
    assert len(shown(grid, collapses=True, columns="seed,val_loss").rows) == 5
    assert values(shown(grid, collapses=True, sort="seed"), "seed") == [0, 0, 0, 0, 1]
    assert len(shown(grid, collapses=True, each=True).rows) == 5


def test_pivot_has_medians_and_counts_of_finished_runs(grid: SweepContents) -> None:
    table = shown(grid, pivot="batch_size:device")
    assert table.columns == ["batch_size", "device=cpu", "device=cuda", "runs of device=cpu", "runs of device=cuda"]
    assert [tuple(row.values()) for row in csv.DictReader(io.StringIO(writers.to_csv(table)))] == [
        ("100", "4.0", "2.0", "1", "1"),
        ("1000", "2.0", "", "2", "0"),
    ]
    texts = [[human_field(table, row, name) for name in table.shown] for row in table.rows]
    assert texts == [["100", "4.000", "2.000"], ["1000", "2.000 (n=2)", "N/A"]]
    assert "the number of runs if more than one" in table.legend


def test_pivot_formats_its_metric_as_the_table_does(grid: SweepContents) -> None:
    table = shown(grid, pivot="device:batch_size:val_accuracy", where="seed==0")
    assert table.columns == ["device", "batch_size=100", "batch_size=1000"]  # one run a field: no counts
    (cpu, _) = table.rows
    assert human_field(table, cpu, "batch_size=100") == "0.8750"
    assert json.loads(writers.to_json(table))[0] == {"device": "cpu", "batch_size=100": 0.875, "batch_size=1000": 0.875}
    counted = shown(grid, pivot="device:batch_size:epochs")
    assert human_field(counted, counted.rows[0], "batch_size=1000") == "6 (n=2)"
    assert "| 6 (n=2) |" in writers.to_markdown(counted)


def test_pivot_of_single_runs_explains_no_medians_and_no_speed(
    contents: Callable[..., SweepContents], timed: Callable[..., Any]
) -> None:
    """Each run's last epoch took long, which a note on the speed says."""
    runs = [({"lr": lr, "seed": seed}, timed([1.0] * 9 + [90.0]), {}) for lr in (1, 2) for seed in (0, 1)]
    of_speed, of_accuracy = (shown(contents(*runs), pivot=f"lr:seed{name}") for name in ("", ":val_accuracy"))
    assert of_accuracy.legend == "val_accuracy of each finished run. N/A: no finished run has it."
    assert any("overall_samples_per_second" in note for note in of_speed.notes) and of_accuracy.notes == ()


def test_times_are_explained_where_there_are_any(contents: Callable[..., SweepContents], grid: SweepContents) -> None:
    script = contents(({}, [], {"summary": {"loss": 1.0}}))
    assert "warm-up" in shown(grid).legend
    assert "warm-up" not in shown(script).legend


def test_pivot_distinguishes_values_with_equal_text(
    contents: Callable[..., SweepContents], steady: Callable[..., Any]
) -> None:
    runs = (({"lr": 1, "tag": tag}, steady(seconds), {}) for tag, seconds in ((1, 1.0), ("1", 2.0), (True, 3.0)))
    (row,) = shown(contents(*runs), pivot="lr:tag").rows
    assert row.values == {
        **{"lr": 1, "tag=1": 1.0, "tag='1'": 2.0, "tag=true": 3.0},
        **{"runs of tag=1": 1, "runs of tag='1'": 1, "runs of tag=true": 1},
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": "devise==cpu"}, r"did you mean 'device'\?"),
        ({"sort": "val_acuracy"}, r"`--sort` must name a column of the table, .*; did you mean 'val_accuracy'\?"),
        ({"columns": "lr,optimiser"}, r"`--columns` must name a column.*got 'optimiser'; did you mean 'optimizer'\?"),
        ({"columns": "lr,,device"}, "must be names joined by commas"),
        ({"pivot": "lr"}, "must be ROWS:COLUMNS"),
        ({"pivot": "lr:lr"}, "two different settings"),
        ({"pivot": "lr:devise"}, r"`--pivot` must name a column.*did you mean 'device'\?"),
        ({"pivot": "lr:device:status"}, "must have a metric of numbers, got 'status'"),
        ({"pivot": "lr:device", "sort": "lr"}, "`--pivot` must go without `--sort`"),
        ({"pivot": "lr:device", "columns": "lr"}, "`--pivot` must go without `--columns`"),
        ({"pivot": "lr:device", "each": True}, "`--pivot` must go without `--each`"),
    ],
)
def test_invalid_queries_are_rejected(grid: SweepContents, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        shown(grid, **options)


def test_latex_is_booktabs_and_escaped(grid: SweepContents) -> None:
    table = Table(
        columns=["run", "val_accuracy", "reason"],
        rows=[Row({"run": "lr=0.1_50%&{x}\\~^", "val_accuracy": 0.98765, "reason": None})],
        shown=("run", "val_accuracy", "reason"),
        notes=("A note\nof 100 %.",),
        legend="How to read it.",
        shows_empty=True,
    )
    assert writers.to_latex(table).splitlines() == [
        "% How to read it.",
        "% A note of 100 %.",
        r"\begin{tabular}{lrl}",
        r"\toprule",
        r"run & val accuracy & reason \\",
        r"\midrule",
        r"lr=0.1\_50\%\&\{x\}\textbackslash{}\textasciitilde{}\textasciicircum{} & 0.9877 &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert writers.to_latex(shown(grid, collapses=True)).count(r"$\pm$") > 1  # the seeds of one cell


def test_pivot_of_a_table_of_event_files_must_name_its_metric() -> None:
    row = {"run": "a", "lr": 0.1, "width": 8, "val loss": 0.5}
    table = Table(list(row), [Row(row)], settings=("lr", "width"), foreign=("val loss",), shown=("run",))
    with pytest.raises(
        UsageError, match=r"`--pivot` must name its metric here, got 'lr:width'; add one of: val loss\."
    ):
        TableQuery.parse(pivot="lr:width").of_table(table)
    pivoted = TableQuery.parse(pivot="lr:width:val loss", where="`val loss` < 1").of_table(table)
    assert [row["width=8"] for row in pivoted.rows] == [0.5]
