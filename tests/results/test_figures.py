"""The figures of a sweep: what known numbers look like, which sweeps have which, and how large they may become."""

import math
import re
import xml.etree.ElementTree as ET

import matplotlib
import msgspec
import pytest

from runmanager.records.run.status import Reason, Status
from runmanager.results.compare.comparison import CompareOptions, compare
from runmanager.results.figures.catalog import sweep_figures
from runmanager.results.figures.figure import inline_svg, render
from runmanager.results.stats.effects import typical_interval
from runmanager.results.tables.results_table import result_rows

SVG = "{http://www.w3.org/2000/svg}"
PHASES = ("data_seconds", "transfer_seconds", "compute_seconds", "eval_seconds", "tracking_seconds")
EVIL = ("a\x00b\x1bc\nd", "$x_1^2$", "_hidden", "<script>&'\"", "学習", "n" * 3000, "a b " * 500)


def figures_in(sweep):
    """Each figure of a sweep by its name."""
    tables = {"results": result_rows(sweep, None), "comparison": compare(sweep, None)}
    return {figure.name: figure for figure in sweep_figures(sweep, **tables)}


def texts_of(drawn):
    """What is written in a figure, line by line, as a file has it."""
    return texts_in(file_of(drawn))


def file_of(drawn):
    return ET.fromstring(render(drawn, "svg"))


def texts_in(file):
    return [element.text for element in file.iter(f"{SVG}text")]


def numbers_in(file):
    """Every coordinate in the paths of a figure's file."""
    paths = [element.get("d", "") for element in file.iter(f"{SVG}path")]
    return [float(number) for path in paths for number in re.findall(r"-?\d[\d.e-]*|nan|inf", path)]


def finished(contents, timed, configs, **columns):
    """A sweep of finished runs from (settings, seconds of its six measured epochs, val_accuracy at the end)."""
    return contents(*((config, timed([9.0] + [seconds] * 6, **columns), {}) for config, seconds in configs))


@pytest.fixture(scope="module")
def grid(contents, timed):
    """Two devices, of which cuda is ten times as fast at the large batch alone, and three seeds of each cell."""
    cells = [
        ({"batch_size": size, "device": device, "seed": seed}, seconds * (1 + 0.01 * seed))
        for (size, device), seconds in {
            (100, "cpu"): 2.0,
            (100, "cuda"): 4.0,
            (1000, "cpu"): 2.0,
            (1000, "cuda"): 0.2,
        }.items()
        for seed in (0, 1, 2)
    ]
    return figures_in(finished(contents, timed, cells, data_seconds=0.1, compute_seconds=0.3))


def test_the_comparison_has_a_row_a_pair_with_its_verdict(grid):
    drawn = grid["speedups"]
    assert re.fullmatch(
        r"Of 2 pairs: 1 faster, 1 slower\. The largest is of batch_size=1000: 10, 95% interval 8\.\d+ to 11\.\d; the "
        r"smallest is of batch_size=100: 0\.5, 95% interval 0\.4\d+ to 0\.5\d+\.",
        drawn.description,
    )
    texts = texts_of(drawn)
    assert [text for text in texts if text.startswith("batch_size")] == ["batch_size=1000", "batch_size=100"]
    assert {"faster", "slower", "speedup: cuda / cpu, samples per second"} <= set(texts)
    (axes,) = drawn.draw().axes
    assert axes.get_xscale() == "log"
    bands = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches]
    assert bands == [pytest.approx((0.9, 1.1))] * 2


@pytest.mark.parametrize(
    ("drift", "said"), [(0.1, "wholly outside the grey band."), (0.0, "wholly on one side of the line.")]
)
def test_where_an_interval_must_lie_is_said_as_it_is_drawn(contents, timed, drift, said):
    cells = [({"lr": lr, "device": device}, 2.0) for lr in (1, 2) for device in ("cpu", "cuda")]
    sweep = finished(contents, timed, cells)
    tables = {"results": result_rows(sweep, None), "comparison": compare(sweep, None, CompareOptions(drift=drift))}
    drawn = {figure.name: figure for figure in sweep_figures(sweep, **tables)}["speedups"]
    assert drawn.caption.endswith(f"A difference is said where the interval lies {said}")


def test_pairs_without_a_speedup_are_counted_and_a_single_one_is_no_figure(contents, timed):
    cells = [({"batch_size": size, "device": device}, 2.0) for size in (1, 2, 3) for device in ("cpu", "cuda")]
    assert "1 pair could not be measured." in figures_in(finished(contents, timed, cells[:-1]))["speedups"].caption
    assert "speedups" not in figures_in(finished(contents, timed, cells[:3]))


def test_of_many_pairs_some_are_drawn_at_even_steps(contents, timed):
    cells = [
        ({"lr": lr, "device": device}, 1.0 + lr * (device == "cpu"))
        for lr in range(1, 51)
        for device in ("cpu", "cuda")
    ]
    drawn = figures_in(finished(contents, timed, cells))["speedups"]
    assert "(24 of 50, at even steps)" in drawn.caption
    labels = [text for text in texts_of(drawn) if text.startswith("lr=")]
    assert (len(labels), labels[0], labels[-1]) == (24, "lr=50", "lr=1")


def test_throughput_along_an_axis_has_a_line_a_device_with_its_interval(grid):
    drawn = grid["throughput-by-batch_size"]
    assert "cpu: 495 samples per second at batch_size=100, 495 at 1000" in drawn.description
    assert "cuda: 248 samples per second at batch_size=100, 4,950 at 1000" in drawn.description
    (axes,) = drawn.draw().axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["100", "1,000"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("batch_size", "samples per second")
    cuda = next(line for line in axes.containers if line.get_label() == "cuda")
    whisker = max(cuda.lines[2][0].get_segments(), key=lambda segment: segment[0][0])
    rates = [[1000 / (0.2 * (1 + 0.01 * seed))] * 6 for seed in (0, 1, 2)]
    expected = typical_interval(rates)
    assert sorted(whisker[:, 1]) == pytest.approx([expected.low, expected.high])


@pytest.mark.parametrize("values", [(100, 200, 300), (1, 10, 1000), ("one", "two")])
def test_whiskers_of_several_lines_stand_beside_each_other_about_their_place(contents, timed, values):
    """On a linear scale, on a log scale, and of words: seen on the page, in pixels."""
    cells = [
        ({"size": value, "optimizer": {"name": name}, "seed": seed}, seconds + 0.1 * seed)
        for value, seconds in zip(values, (1.0, 2.0, 3.0), strict=False)
        for name in ("a", "b", "c")
        for seed in (0, 1, 2)
    ]
    drawn = figures_in(finished(contents, timed, cells))["throughput-by-size"]
    assert "Lines stand a little beside each other" in drawn.caption
    axes = drawn.draw().axes[0]
    axes.figure.canvas.draw()
    lines = [line.lines[2][0].get_segments() for line in axes.containers]
    for at, place in enumerate(range(len(values)) if "one" in values else values):
        left, middle, right = (axes.transData.transform(segments[at])[0][0] for segments in lines)
        assert middle == pytest.approx(axes.transData.transform((place, 100))[0])
        assert right - middle == pytest.approx(middle - left)
        assert middle - left >= 2 * 3 * axes.figure.dpi / 72  # a whisker's end reaches three points to either side


def test_lines_at_places_close_together_stand_nearer_to_theirs_than_to_another(contents, timed):
    cells = [
        ({"size": size, "optimizer": {"name": name}}, 1.0 + at * size / 100)
        for size in (*range(100, 120), 1000)
        for at, name in enumerate("ab")
    ]
    axes = figures_in(finished(contents, timed, cells))["throughput-by-size"].draw().axes[0]
    xs = [list(line.lines[0].get_xdata()) for line in axes.containers]
    assert all(abs(x - round(x)) < 0.25 for line in xs for x in line)
    assert xs[0] != xs[1]


def test_the_wide_interval_of_two_seeds_leaves_the_points_their_room(contents, timed):
    cells = [
        ({"batch_size": size, "seed": seed}, 2000 / size * (1 + spread * seed))
        for size, spread in ((1000, 0.01), (2000, 2.0))
        for seed in (0, 1)
    ]
    drawn = figures_in(finished(contents, timed, cells))["throughput-by-batch_size"]
    (axes,) = drawn.draw().axes
    (line,) = axes.containers
    most = max(line.lines[0].get_ydata())
    assert max(segment[:, 1].max() for segment in line.lines[2][0].get_segments()) > 2 * most
    assert axes.get_ylim() == (0, pytest.approx(2 * most))
    assert "Whiskers without an upper end go beyond 1,1" in drawn.caption
    calm = [(config, seconds) for config, seconds in cells if config["seed"] == 0]
    assert "beyond" not in figures_in(finished(contents, timed, calm))["throughput-by-batch_size"].caption


def test_millions_are_written_out(contents, timed):
    cells = [({"width": width}, 1000 / rate) for width, rate in ((1_500_000, 2e6), (3_000_001, 5e6))]
    (axes,) = figures_in(finished(contents, timed, cells))["throughput-by-width"].draw().axes
    axes.figure.canvas.draw()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1,500,000", "3,000,001"]
    said = [label.get_text() for label in axes.get_yticklabels()]
    assert "2,000,000" in said
    assert not [text for text in said if "e" in text]


def test_where_much_else_varies_a_point_is_the_median_of_cells(contents, timed):
    cells = [({"lr": lr, "batch_size": size}, 2.0 / size * lr) for lr in range(10, 19) for size in (1, 2)]
    drawn = figures_in(finished(contents, timed, cells))["throughput-by-batch_size"]
    assert "the median of the cells that differ in lr, with whiskers to their quartiles" in drawn.caption
    (line,) = drawn.draw().axes[0].containers
    expected = [sorted(1000 / (2.0 / size * lr) for lr in range(10, 19)) for size in (1, 2)]
    assert list(line.lines[0].get_ydata()) == pytest.approx([rates[4] for rates in expected])
    ends = [sorted(segment[:, 1]) for segment in line.lines[2][0].get_segments()]
    assert ends == [pytest.approx([rates[2], rates[6]]) for rates in expected]


def test_a_setting_that_is_set_to_nothing_has_its_place(contents, timed):
    cells = [
        ({"micro_batch": value, "device": device}, seconds)
        for value, seconds in ((None, 4.0), (64, 1.0))
        for device in ("cpu", "cuda")
    ]
    drawn = figures_in(finished(contents, timed, cells))["throughput-by-micro_batch"]
    assert "cpu: 1,000 samples per second at micro_batch=64, 250 at null" in drawn.description


def test_numbers_beside_nothing_are_ordered_as_numbers(contents, timed):
    cells = [
        ({"micro_batch": value, "device": device}, seconds)
        for value, seconds in ((None, 4.0), (1000, 2.0), (64, 1.0), (200, 8.0))
        for device in ("cpu", "cuda")
    ]
    found = figures_in(finished(contents, timed, cells))
    (axes,) = found["throughput-by-micro_batch"].draw().axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["64", "200", "1000", "null"]
    (glance,) = found["parallel"].draw().axes
    places = {text.get_text(): text.get_position()[1] for text in glance.texts}
    assert sorted(("64", "200", "1000", "null"), key=places.__getitem__) == ["64", "200", "1000", "null"]


def test_an_axis_of_lists_is_one_of_words(contents, timed):
    cells = [
        ({"betas": betas, "batch_size": size}, seconds)
        for betas, seconds in (([0.9, 0.99], 4.0), ([0.5, 0.9], 1.0), ([0.1, 0.9], 2.0))
        for size in (1, 2)
    ]
    found = figures_in(finished(contents, timed, cells))
    said = "batch_size=1: 500 samples per second at betas=[0.1, 0.9], 250 at [0.9, 0.99], most at [0.5, 0.9] (1,000)"
    assert said in found["throughput-by-betas"].description
    assert "[0.5, 0.9]" in texts_of(found["parallel"])


def test_an_axis_that_changes_nothing_has_no_figure_of_throughput(contents, timed):
    cells = [({"lr": lr, "model": {"name": name}}, 2.0) for lr in (1, 2, 3) for name in ("a", "b")]
    assert not [name for name in figures_in(finished(contents, timed, cells)) if name.startswith("throughput-by")]


def test_words_stand_side_by_side_without_a_line_between_them(contents, timed):
    cells = [
        ({"model": {"name": name}, "device": device}, seconds)
        for name, seconds in (("wide", 4.0), ("narrow", 1.0))
        for device in ("cpu", "cuda")
    ]
    drawn = figures_in(finished(contents, timed, cells))["throughput-by-model"]
    (axes,) = drawn.draw().axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["narrow", "wide"]
    assert {line.lines[0].get_linestyle() for line in axes.containers} == {"None"}


def test_each_run_has_its_dot_and_the_seeds_of_a_cell_one_row(grid):
    drawn = grid["throughput"]
    assert drawn.description == (
        "The fastest is batch_size=1000, device=cuda, at 4,950 samples per second, the mean of its seeds; the slowest "
        "of 4 is batch_size=100, device=cuda, at 248."
    )
    rows = [text for text in texts_of(drawn) if text.startswith("batch_size")]
    assert len(rows) == 4
    dots = [line for line in drawn.draw().axes[0].lines if line.get_label() in ("cpu", "cuda")]
    assert sorted(len(line.get_xdata()) for line in dots) == [6, 6]
    assert len({line.get_marker() for line in dots}) == 2  # colour is not alone in telling them apart


def test_cells_are_ordered_by_their_mean_and_not_by_a_lucky_seed(contents, timed):
    seconds = {"lucky": (0.5, 8.0), "steady": (1.0, 1.0)}
    cells = [({"lr": lr, "seed": seed}, each) for lr, of_lr in seconds.items() for seed, each in enumerate(of_lr)]
    drawn = figures_in(finished(contents, timed, cells))["throughput"]
    assert drawn.description == (
        "The fastest is lr=lucky, at 1,060 samples per second, the mean of its seeds; the slowest of 2 is lr=steady, "
        "at 1,000."
    )
    seconds["lucky"] = (0.55, 8.0)
    cells = [({"lr": lr, "seed": seed}, each) for lr, of_lr in seconds.items() for seed, each in enumerate(of_lr)]
    drawn = figures_in(finished(contents, timed, cells))["throughput"]
    assert drawn.description.startswith("The fastest is lr=steady, at 1,000 samples per second, the mean of its seeds;")
    assert [text for text in texts_of(drawn) if text.startswith("lr=")] == ["lr=steady", "lr=lucky"]


def test_phases_stand_in_their_order_and_the_rest_is_said_not_to_be_measured(contents, timed):
    epochs = timed([9.0] + [2.0] * 6, data_seconds=0.5, compute_seconds=1.5)  # of 2.5 seconds of wall time
    drawn = figures_in(contents(({"lr": 0.1}, epochs, {})))["phases"]
    assert "takes 2.5 seconds: 20% data, 60% compute and 20% not measured apart." in drawn.description
    assert drawn.caption.endswith("transfer, eval and tracking were not measured.")
    (axes,) = drawn.draw().axes
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    assert bars == [pytest.approx(each) for each in ((0.0, 0.5), (0.5, 1.5), (2.0, 0.5))]
    assert len({bar.get_hatch() for bar in axes.patches}) == 3


def test_what_belongs_to_no_phase_is_shown_where_all_phases_are_known_too(contents, timed):
    phases = dict.fromkeys(("data_seconds", "transfer_seconds", "eval_seconds", "tracking_seconds"), 0.25)
    epochs = timed([9.0] + [2.0] * 6, compute_seconds=1.0, **phases)  # of 2.5 seconds of wall time
    drawn = figures_in(contents(({"lr": 0.1}, epochs, {})))["phases"]
    assert "takes 2.5 seconds:" in drawn.description and "20% not measured apart" in drawn.description


def test_phases_of_epochs_that_differ_much_in_length_are_shares(contents, timed):
    phases = dict.fromkeys(PHASES[:4], 0.1) | {"tracking_seconds": 0.0}
    short, long = (
        timed([9.0] + [0.3] * 6, **(phases | {"compute_seconds": 0.5})),
        timed([900.0] + [30.0] * 6, **(phases | {"compute_seconds": 30.2})),
    )
    drawn = figures_in(contents(({"lr": 1}, short, {}), ({"lr": 2}, long, {})))["phases"]
    (axes,) = drawn.draw().axes
    assert axes.get_xlim() == (0, 1)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lr=1 (0.8 s)", "lr=2 (30.5 s)"]
    assert "not measured" not in drawn.caption + drawn.description


def test_the_longest_epoch_is_told_by_all_of_its_phases(contents, timed):
    """lr=1 trains faster, and is evaluated for so long that its epochs are the longer ones."""
    rest = dict.fromkeys(("data_seconds", "transfer_seconds", "tracking_seconds"), 0.0)
    cells = [
        ({"lr": lr}, timed([9.0] + [seconds] * 6, **rest, compute_seconds=seconds, eval_seconds=evaluated), {})
        for lr, seconds, evaluated in ((1, 1.0, 4.0), (2, 2.0, 0.5))
    ]
    drawn = figures_in(contents(*cells))["phases"]
    said = re.search(r"shortest epoch, of lr=2, takes 2\.5 .* longest, of lr=1, takes 5 ", drawn.description)
    assert said and "fastest training first" in drawn.caption


def test_a_curve_is_the_mean_of_the_finished_seeds_within_their_range(contents, timed):
    first, second = timed([1.0] * 3), timed([1.0] * 3, samples=10)
    second = [type(epoch)(**{**as_fields(epoch), "val_accuracy": epoch.val_accuracy / 2}) for epoch in second]
    died = {"status": Status.FAILED, "reason": Reason.DIVERGED}
    runs = [({"lr": 1, "seed": at}, epochs, {}) for at, epochs in enumerate((first, second))]
    sweep = contents(*runs, ({"lr": 1, "seed": 2}, timed([1.0]), died), ({"lr": 2, "seed": 0}, first[:2], {}))
    drawn = figures_in(sweep)["curves"]
    (axes,) = drawn.draw().axes
    by_label = {line.get_label(): line for line in axes.lines}
    assert list(by_label["lr=1"].get_xdata()) == [1, 2, 3]
    expected = [0.75 * epoch.val_accuracy for epoch in first]
    assert list(by_label["lr=1"].get_ydata()) == pytest.approx(expected)
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((0.125, 0.75))
    assert "its band reaches from the lowest to the highest of them" in drawn.caption
    best = max(axes.lines, key=lambda line: line.get_linewidth())
    assert best.get_label() == "lr=2"
    assert drawn.description.startswith("The best of 2 curves goes from 0.25 to 0.625")


def test_the_best_curve_is_of_a_cell_that_finished_and_did_not_diverge(contents, timed):
    killed = {"status": Status.KILLED, "reason": Reason.SIGNAL}
    diverged = [msgspec.structs.replace(epoch, val_accuracy=math.nan) for epoch in timed([2.0] * 3)]
    curves = figures_in(
        contents(
            ({"lr": 0.1}, diverged, {}),
            ({"lr": 0.2}, timed([2.0] * 9), killed),
            ({"lr": 0.3}, timed([2.0] * 3), {}),
            ({"lr": 0.4}, timed([2.0] * 2), {}),
        )
    )["curves"]
    assert re.search(r"best of 4 curves .* at epoch 3: lr=0\.3\.", curves.description)
    assert curves.description.endswith("The worst ends at nan: lr=0.1.")


def as_fields(epoch):
    return {name: getattr(epoch, name) for name in epoch.__struct_fields__}


def test_a_seed_that_stopped_early_does_not_make_another_cell_the_best_one(contents, timed):
    """By epoch 2, where its shortest seed ends, lr=0.1 is no better than lr=0.2; by what its seeds came to it is."""
    counts = {(0.1, 1): 2, (0.1, 2): 20, (0.2, 1): 3, (0.2, 2): 3}
    sweep = contents(*(({"lr": lr, "seed": seed}, timed([1.0] * count), {}) for (lr, seed), count in counts.items()))
    curves = figures_in(sweep)["curves"]
    assert re.search(r"The best of 2 curves .* at epoch 2: lr=0\.1\.", curves.description)
    assert "It ends with the shortest of them" in curves.caption
    whole = contents(*(({"lr": 0.1, "seed": seed}, timed([1.0] * 3), {}) for seed in (1, 2)))
    assert "shortest" not in figures_in(whole)["curves"].caption


def test_the_sweep_at_a_glance_has_an_axis_a_setting_and_the_better_above(contents, timed):
    cells = [
        ({"lr": lr, "batch_size": size, "model": {"name": name}}, size / 100.0)
        for lr in (0.001, 0.01, 0.1)
        for size in (100, 200)
        for name in ("b", "a")
    ]
    drawn = figures_in(finished(contents, timed, cells))["parallel"]
    texts = texts_of(drawn)
    assert [name for name in ("lr", "batch_size", "model", "val_accuracy") if name in texts] == [
        "lr",
        "batch_size",
        "model",
        "val_accuracy",
    ]
    assert {"0.001", "0.01", "0.1", "100", "200", "a", "b"} <= set(texts)
    assert "The best val_accuracy is 0.893" in drawn.description
    assert "without a result" not in drawn.caption


@pytest.mark.parametrize(("metric", "said"), [("val_accuracy", 0.9), ("val_loss", 0.1)])
def test_the_best_of_a_glance_is_where_its_metric_is_better(contents, timed, metric, said):
    gone = dict.fromkeys(("accuracy", "val_accuracy", "loss", "val_loss"))

    def epochs(value):
        return [type(each)(**{**as_fields(each), **gone, metric: value}) for each in timed([1.0, 1.0])]

    runs = [({"lr": lr, "batch_size": size}, epochs(lr), {}) for lr in (0.1, 0.5, 0.9) for size in (1, 2)]
    failed = ({"lr": 0.7, "batch_size": 1}, [], {"status": Status.FAILED, "reason": Reason.EXCEPTION})
    drawn = figures_in(contents(*runs, failed))["parallel"]
    assert f"The best {metric} is {said}, with lr={said}" in drawn.description
    assert "Left out: 1 cell without a result." in drawn.caption
    last = [line for line in drawn.draw().axes[0].lines if len(line.get_xdata()) > 2]
    ends = [max(y for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True) if x == 3) for line in last]
    assert ends == sorted(ends)  # the best are drawn last, and stand above
    assert ends[-1] == 1


def test_few_cells_or_one_axis_are_no_glance(contents, timed):
    few = [({"lr": lr, "batch_size": 1 + lr % 2}, 1.0) for lr in range(5)]
    one = [({"lr": lr}, 1.0) for lr in range(9)]
    assert all("parallel" not in figures_in(finished(contents, timed, cells)) for cells in (few, one))


@pytest.mark.parametrize("seeds", [1, 10])
def test_a_thousand_runs_take_little_room(contents, timed, seeds):
    epochs = timed([1.0] * 20, **dict.fromkeys(PHASES, 0.1))
    cells = [
        {"lr": at // 2 + 1, "batch_size": at % 2, "seed": seed} for at in range(1000 // seeds) for seed in range(seeds)
    ]
    found = figures_in(contents(*((config, epochs, {}) for config in cells)))
    assert {"throughput", "phases", "curves", "parallel"} <= set(found)
    assert sum(len(inline_svg(drawn)) for drawn in found.values()) < 1_500_000


def test_a_curve_of_many_epochs_takes_no_more_than_a_page_can_show(contents, timed):
    long, very_long = (
        inline_svg(figures_in(contents(({"lr": 0.1}, timed([1.0] * count), {})))["curves"]) for count in (500, 10_000)
    )
    assert len(very_long) < 1.1 * len(long)


def test_names_that_mean_something_to_others_are_shown_as_they_are(contents, timed):
    cells = [({"data": name, "model": at % 2}, 1.0 + at) for at, name in enumerate(EVIL)]
    found = figures_in(finished(contents, timed, cells, **dict.fromkeys(PHASES, 0.1)))
    assert {"throughput", "phases", "curves", "parallel"} <= set(found)
    for name, drawn in found.items():
        file = file_of(drawn)  # with a control character in it, it would be no XML
        said = "\n".join(texts_in(file))
        # Of these the one has room for a few, the other has pairs.
        whole = [] if name in ("parallel", "speedups") else [*EVIL[1:5], r"a\x00b\x1bc"]
        assert [text for text in whole if text not in said] == []
        assert all(map(math.isfinite, numbers_in(file)))
    assert "<script>" not in inline_svg(found["throughput"])


def test_long_labels_leave_room_for_what_they_name(contents, timed):
    names = [f"a_setting_of_many_{at}" for at in range(5)]
    sweep = contents(*((dict.fromkeys(names, at), timed([1.0] * 7), {}) for at in range(3)))
    for drawn in figures_in(sweep).values():  # matplotlib warns, and a warning is an error here, where no room is left
        assert "a_setting_of_many_4=2" in "".join(texts_of(drawn)).replace("\n", "")


def test_a_sweep_of_failures_has_no_figure_and_one_run_has_what_it_measured(contents, timed):
    failed = {"status": Status.FAILED, "reason": Reason.EXCEPTION}
    assert figures_in(contents(*(({"lr": lr}, [], failed) for lr in (1, 2)))) == {}
    assert figures_in(contents()) == {}
    one = figures_in(contents(({"lr": 0.1}, timed([2.0] * 3, compute_seconds=1.0), {})))
    assert list(one) == ["throughput", "phases", "curves"]
    assert all(drawn.title and drawn.caption and drawn.description for drawn in one.values())
    seeds = figures_in(
        contents(*(({"lr": 0.1, "seed": seed}, timed([2.0] * 3, compute_seconds=1.0), {}) for seed in (1, 2)))
    )
    assert all("2 seeds" in drawn.description for drawn in seeds.values())
    only_warmup = figures_in(contents(({"lr": 0.1}, timed([2.0]), {})))
    assert only_warmup == {}


def test_a_figure_in_a_page_takes_its_colours_and_a_file_opens_alone(grid):
    for drawn in grid.values():
        inline, alone = inline_svg(drawn), render(drawn, "svg").decode()
        assert "currentColor" in inline
        assert not re.search("#010203|#fefdfc|xmlns|<metadata|<\\?xml", inline)
        assert "currentColor" not in alone
        assert "var(--" not in alone
        assert "http://www.w3.org/2000/svg" in alone
        root = ET.fromstring(alone)
        assert root.find(f"{SVG}title").text == drawn.title
        assert drawn.description in "".join(root.itertext())
    assert render(drawn, "svg").decode() == alone
    assert render(drawn, "png").startswith(b"\x89PNG\r\n")


def test_no_two_figures_of_a_page_share_an_id(grid):
    page = "".join(map(inline_svg, grid.values()))
    defined = re.findall(r'<(?:path|clipPath|pattern) id="([^"]+)"', page)
    assert defined
    assert len(defined) == len(set(defined))


def test_a_users_own_style_changes_nothing_and_is_left_alone(grid):
    plain = render(grid["curves"], "svg")
    with matplotlib.rc_context(
        {"text.usetex": True, "font.size": 30, "savefig.bbox": "tight", "figure.facecolor": "red"}
    ):
        before = dict(matplotlib.rcParams)
        assert render(grid["curves"], "svg") == plain
        assert dict(matplotlib.rcParams) == before
