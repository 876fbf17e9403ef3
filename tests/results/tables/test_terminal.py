"""Tables rendered for the terminal."""

import io

import msgspec
import pytest
from rich.console import Console

from runmanager.records.run.status import Reason, Status
from runmanager.records.settings.grid import expand_grid
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.tables.query import TableQuery
from runmanager.results.tables.results_table import result_rows
from runmanager.results.tables.shown_rows import collapse_seeds
from runmanager.results.tables.terminal import render_comparison, render_results, render_summary

CONFIGS = [
    {"lr": 0.01, "batch_size": size, "num_workers": workers, "device": device}
    for size in (1000, 20000)
    for workers in (0, 1)
    for device in ("cuda", "cpu")
]


def printed(renderable, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(renderable)
    return console.file.getvalue()


@pytest.fixture
def grid(contents, timed):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    runs = []
    for config in CONFIGS:
        seconds = 0.123456 if config["device"] == "cuda" else 1.5
        is_skipped = config["num_workers"] == 1 and config["device"] == "cuda"
        epochs = [] if is_skipped else timed([9.0] + [seconds] * 5, samples=60000)
        runs.append((config, epochs, skipped if is_skipped else {}))
    return contents(*runs)


def test_results_fit_80_columns_without_breaking_numbers(grid):
    text = printed(render_results(result_rows(grid, None)))
    assert max(map(len, text.splitlines())) <= 80
    for whole in ("486,000", "40,000", "0.1235", "20000", "cuda", "finished", "skipped", "device_unavailable", "N/A"):
        assert whole in text
    assert "warm-up" in text
    assert "Omitted for lack of space: peak_memory_bytes" not in text  # its values are all missing
    assert "Omitted for lack of space: val_loss" in text


def test_a_wide_pivot_omits_its_last_columns_and_names_them(contents, timed):
    runs = [({"lr": lr / 10, "batch_size": 2**20, "device": "cpu"}, timed([9.0, 2.0]), {}) for lr in range(1, 30)]
    table = TableQuery.parse(pivot="batch_size:lr").of_sweep(contents(*runs), None)
    text = printed(render_results(table))
    assert max(map(len, text.splitlines())) <= 80
    assert "2.000" in text and "lr=0.1" in text
    assert "Omitted for lack of space: lr=2.9, lr=2.8, " in text


def test_large_numbers_use_scientific_notation(contents, timed):
    run = (
        {"lr": 1.0, "batch_size": 1, "device": "cpu"},
        [msgspec.structs.replace(epoch, loss=3.21e29) for epoch in timed([9.0, 2.0])],
        {},
    )
    assert "3.21e+29" in printed(render_results(result_rows(contents(run), None)), 120)


def test_a_wide_terminal_shows_all_columns(grid):
    text = printed(render_results(result_rows(grid, None), width=200), width=200)
    assert "Omitted" not in text
    assert "loss" in text


def test_the_first_rows_are_shown_with_the_total_count(grid):
    table = result_rows(grid, None)
    text = printed(render_results(table, limit=3))
    assert "The first 3 of 8 runs; --all shows all." in text
    assert text.count("finished") == 3
    assert "The first" not in printed(render_results(table, limit=None))


def test_the_comparison_fits_80_columns_and_has_each_reason_once(grid):
    text = printed(render_comparison(compare(grid, None)))
    assert max(map(len, text.splitlines())) <= 80
    assert "12.15  6.986 to 21.13  faster" in text
    assert text.count("cuda: skipped (device_unavailable)") == 1
    assert text.count("[1]") == 3
    assert "hold jointly" in text


@pytest.mark.parametrize("num_settings", [2, 4])
@pytest.mark.parametrize("axis", ["device", "any"])
def test_words_of_a_comparison_are_not_broken_in_80_columns_with_many_settings(contents, timed, num_settings, axis):
    names = ("batch_size", "num_workers", "optimizer", "scheduler")[:num_settings]
    values = {"batch_size": (1000, 20000), "num_workers": (0, 1), "optimizer": ("adam", "sgd"), "scheduler": ("a", "b")}
    cells = expand_grid(**{name: values[name] for name in names}, device=["cpu", "cuda"])
    runs = [(cell, timed([9.0] + [1.0 + at / 100] * 5), {}) for at, cell in enumerate(cells)]
    table = compare(contents(*runs), None, CompareOptions(axis=axis, metric="epoch_seconds"))
    text = printed(render_comparison(table, limit=None))
    rows = text.split("[1] fewer than")[0]
    assert max(map(len, text.splitlines())) <= 80
    words = set(rows.replace("batch_size=", "").replace(",", "").split())
    assert {"[1]", "note", "20000", "inconclusive", "cuda", "speedup"} <= words
    assert "Omitted for lack of space: baseline, candidate." in text
    assert (num_settings == 4) is ("\nat  " in rows)


def test_means_and_deviations_are_not_broken_in_80_columns(contents, timed):
    failed = {"status": Status.FAILED, "reason": Reason.OUT_OF_MEMORY}
    runs = [
        (config | {"seed": seed}, timed([9.0] + [1.0 + seed / 10] * 5, samples=60000), failed if seed == 2 else {})
        for config in CONFIGS
        for seed in range(3)
        if config["num_workers"] == 0
    ]
    text = printed(render_results(collapse_seeds(result_rows(contents(*runs), None))))
    assert max(map(len, text.splitlines())) <= 80
    assert "\nrun " not in text  # the settings fit
    for whole in ("1.050", "± 0.071", "57,270", "± 3,857", "0.8750", "± 0.0000", "out_of_memory"):
        assert whole in text
    wide = printed(render_results(collapse_seeds(result_rows(contents(*runs), None)), width=200), width=200)
    assert "57,270 ± 3,857" in wide


def test_markup_in_a_setting_is_literal(contents, timed):
    sweep = contents(({"lr": "[red]x[/red]"}, timed([1.0]), {}), ({"lr": "y"}, timed([1.0]), {}))
    assert "[red]x[/red]" in printed(render_results(result_rows(sweep, None)))


@pytest.mark.parametrize(("count", "name"), [(2, "optimizer"), (12, "settings")])
def test_many_settings_are_folded_without_losing_characters(contents, timed, count, name):
    settings = {f"optimizer.long_option_{at}": "v" * 30 for at in range(count)}
    runs = [(settings, timed([1.0, 2.0]), {}), (dict.fromkeys(settings, "w"), timed([1.0, 2.0]), {})]
    table = result_rows(contents(*runs), None)
    text = printed(render_results(table))
    assert max(map(len, text.splitlines())) <= 80
    assert f"\n{name}" in text
    assert text.count("v") >= count * 30
    for number in ("2.000", "500.0", "0.6250"):
        assert number in text


def test_a_reason_is_not_broken_if_another_column_can_be_omitted(contents, timed):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    runs = ({"device": "cpu"}, timed([9.0] + [1.0] * 5), {}), ({"device": "cuda"}, [], skipped)
    table = result_rows(contents(*runs), None)
    for width in range(70, 110):
        assert "device_unavailable" in printed(render_results(table, width=width), width)


def test_verdicts_and_intervals_wrap_between_words_if_space_is_short(contents, timed):
    sides = [{"batch_size": size, "seed": seed} for size in (100, 200) for seed in (1, 2, 3)]
    sweep = contents(*((side, timed([9.0] + [1.0 + side["seed"] / 7] * 5), {}) for side in sides))
    table = compare(sweep, None, CompareOptions(axis="batch_size", metric="val_accuracy"))
    table.rows[0].values.update(difference=0.0, ci_low=-0.1813, ci_high=0.1813, verdict="no difference", reason="why")
    text = printed(render_comparison(table))
    assert "-0.1813 to 0.1813  no  " in text and "verdict      note\n" in text  # the verdict wraps first
    text = printed(render_comparison(table, width=76), width=76)
    assert "-0.1813 to" not in text and "to 0.1813" in text and "note\n" in text


def test_a_comparison_without_pairs_explains_why(contents, timed):
    sweep = contents(({"device": "cpu"}, timed([1.0]), {}))
    assert "Nothing to compare: every run has device=cpu." in printed(render_comparison(compare(sweep, None)))
    sweep = contents(*(({"device": "cpu", "lr": lr}, timed([1.0]), {}) for lr in (1, 2)))
    assert "`runmanager compare mine --axis lr`." in printed(render_comparison(compare(sweep, None)))  # no answer yet


def test_results_fit_40_columns_without_breaking_numbers(contents, timed):
    runs = [({"lr": lr / 100, "device": "cpu"}, timed([9.0] + [0.0033955] * 5, samples=400)) for lr in range(1, 5)]
    text = printed(render_results(result_rows(contents(*((*run, {}) for run in runs)), None), width=30), width=30)
    assert max(map(len, text.splitlines())) <= 30
    for whole in ("0.01", "0.8750", "117,800"):
        assert whole in text
    assert "epoch_seconds" in text.partition("Omitted for lack of space:")[2]


LOSSES = {0.1: 0.5, 0.01: 0.25, 0.001: 0.75}


@pytest.fixture
def regression(contents, timed):
    """Three cells with a loss only, the best one neither first nor fastest, and one that failed and is not a result."""
    failed = {"status": Status.FAILED, "reason": Reason.OUT_OF_MEMORY}
    runs = []
    for seconds, (lr, loss) in enumerate(LOSSES.items(), start=1):
        losses = {"accuracy": None, "val_accuracy": None, "loss": loss, "val_loss": loss}
        epochs = [msgspec.structs.replace(each, **losses) for each in timed([9.0] + [float(seconds)] * 5)]
        settings = {"lr": lr, "optimizer.name": "sgd", "optimizer.momentum": lr / 2, "model.hidden_size": 7 * seconds}
        runs.append((settings, epochs, failed if lr == 0.1 else {}))
    return contents(*runs)


def lines_of(text):
    """The rows of a rendered table, without heading and legend."""
    return text.split("─\n")[1].split("\n\n")[0].splitlines()


def test_the_best_result_comes_first_and_its_metric_stays_in_a_narrow_terminal(regression):
    table = TableQuery.parse().of_sweep(regression, None, collapses=True)
    assert [row["lr"] for row in table.rows] == [0.01, 0.001, 0.1]  # a failed run is not a result
    text = printed(render_results(table, width=60), 60)
    assert "0.2500" in lines_of(text)[0] and "val" in text
    assert "out_of_memory" not in "".join(lines_of(text)) and "Reasons: out_of_memory." in text
    assert "Omitted for lack of space: loss, epochs, epoch_seconds." in text
    by_file = TableQuery.parse().of_sweep(regression, None)
    assert [row["lr"] for row in by_file.rows] == [0.1, 0.01, 0.001]  # files: the fastest first


def test_a_group_has_the_name_that_a_command_takes(contents, timed):
    sweep = contents(*(({"optimizer.name": name}, timed([9.0] + [2.0] * 5), {}) for name in ("adam", "sgd")))
    text = printed(render_results(TableQuery.parse().of_sweep(sweep, None, collapses=True), width=240), 240)
    assert text.split("─")[0].splitlines()[-1].split()[0] == "optimizer"


def test_skipped_cells_are_one_line_unless_they_are_asked_for(grid):
    query = TableQuery.parse()
    table = query.of_sweep(grid, None, collapses=True)
    assert len(table.rows) == 6
    assert "2 cells with" not in "".join(table.notes)  # other cells on cuda were not skipped
    assert table.notes[0] == "2 cells are skipped (device_unavailable); --all shows them."
    assert len(query.of_sweep(grid, None, collapses=True, shows_all=True).rows) == 8
    assert len(query.of_sweep(grid, None).rows) == 8
    asked = TableQuery.parse(where="status==skipped").of_sweep(grid, None, collapses=True)
    assert len(asked.rows) == 2


def test_what_sets_skipped_cells_apart_is_named(contents, timed):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    cells = [({"lr": lr, "device": device}, device) for lr in (1, 2) for device in ("cpu", "cuda")]
    runs = [(cell, [], skipped) if device == "cuda" else (cell, timed([1.0]), {}) for cell, device in cells]
    table = TableQuery.parse().of_sweep(contents(*runs), None, collapses=True)
    assert table.notes[0] == "2 cells with device=cuda are skipped (device_unavailable); --all shows them."


def test_skipped_cells_are_counted_by_run_also_where_seeds_are_one_row(contents, timed):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    cells = [({"device": device, "seed": seed}, device) for device in ("cpu", "cuda") for seed in (0, 1, 2)]
    runs = [(cell, [], skipped) if device == "cuda" else (cell, timed([1.0]), {}) for cell, device in cells]
    query = TableQuery.parse()
    table = query.of_sweep(contents(*runs), None, collapses=True)
    assert table.notes[0] == "3 cells with device=cuda are skipped (device_unavailable); --all shows them."
    assert [row["seeds"] for row in table.rows] == [3]
    some = [*runs[:4], ({"device": "cuda", "seed": 1}, timed([1.0]), {})]
    table = query.of_sweep(contents(*some), None, collapses=True)
    assert table.notes[0] == "1 cell is skipped (device_unavailable); --all shows it."
    assert sorted((row["device"], row["status"], row["seeds"]) for row in table.rows) == [
        ("cpu", "finished", 3),
        ("cuda", "finished", 1),
    ]


def test_a_summary_has_one_legend(grid):
    text = printed(
        render_summary(
            result_rows(grid, None),
            compare(grid, None),
            limit=3,
            rows_shown_by="X shows all",
            pairs_shown_by="Y shows all",
        )
    )
    assert "The first 3 of 8 runs; X shows all." in text and "The first 3 of 4 pairs; Y shows all." in text
    assert text.index("verdict") < text.index("Times and throughput") < text.index("hold jointly")
