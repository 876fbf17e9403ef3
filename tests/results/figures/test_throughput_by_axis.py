"""The figures of throughput along an axis."""

import pytest

from runmanager.results.stats.effects import typical_interval

from .drawn_figures import figures_in, finished, texts_of


def test_each_device_has_a_line_with_its_interval(grid):
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


@pytest.mark.parametrize(
    ("values", "is_text"),
    [((100, 200, 300), False), ((1, 10, 1000), False), (("one", "two"), True), ((3, 10**400), True)],
    ids=["linear", "log", "text", "beyond a float"],
)
def test_whiskers_of_several_lines_are_offset_around_their_value(contents, timed, values, is_text):
    """On a linear scale, a log scale, and for texts, measured in pixels."""
    cells = [
        ({"size": value, "optimizer": {"name": name}, "seed": seed}, seconds + 0.1 * seed)
        for value, seconds in zip(values, (1.0, 2.0, 3.0), strict=False)
        for name in ("a", "b", "c")
        for seed in (0, 1, 2)
    ]
    drawn = figures_in(finished(contents, timed, cells))["throughput-by-size"]
    assert "Lines are slightly offset from each other" in drawn.caption
    axes = drawn.draw().axes[0]
    axes.figure.canvas.draw()
    lines = [line.lines[2][0].get_segments() for line in axes.containers]
    for index, x in enumerate(range(len(values)) if is_text else values):
        left, middle, right = (axes.transData.transform(segments[index])[0][0] for segments in lines)
        assert middle == pytest.approx(axes.transData.transform((x, 100))[0])
        assert right - middle == pytest.approx(middle - left)
        assert middle - left >= 2 * 3 * axes.figure.dpi / 72  # the cap of a whisker is six points wide


def test_lines_at_close_values_stay_nearest_to_their_own_value(contents, timed):
    cells = [
        ({"size": size, "optimizer": {"name": name}}, 1.0 + index * size / 100)
        for size in (*range(100, 120), 1000)
        for index, name in enumerate("ab")
    ]
    axes = figures_in(finished(contents, timed, cells))["throughput-by-size"].draw().axes[0]
    xs = [list(line.lines[0].get_xdata()) for line in axes.containers]
    assert all(abs(x - round(x)) < 0.25 for line in xs for x in line)
    assert xs[0] != xs[1]


def test_a_very_wide_interval_is_cut_so_that_points_stay_distinguishable(contents, timed):
    cells = [
        ({"batch_size": size, "seed": seed}, 2000 / size * (1 + spread * seed))
        for size, spread in ((1000, 0.01), (2000, 2.0))
        for seed in (0, 1)
    ]
    drawn = figures_in(finished(contents, timed, cells))["throughput-by-batch_size"]
    (axes,) = drawn.draw().axes
    (line,) = axes.containers
    largest = max(line.lines[0].get_ydata())
    assert max(segment[:, 1].max() for segment in line.lines[2][0].get_segments()) > 2 * largest
    assert axes.get_ylim() == (0, pytest.approx(2 * largest))
    assert "Whiskers without an upper end exceed 1,1" in drawn.caption
    single = [(config, seconds) for config, seconds in cells if config["seed"] == 0]
    assert "exceed" not in figures_in(finished(contents, timed, single))["throughput-by-batch_size"].caption


def test_millions_have_plain_tick_labels(contents, timed):
    cells = [({"width": width}, 1000 / rate) for width, rate in ((1_500_000, 2e6), (3_000_001, 5e6))]
    (axes,) = figures_in(finished(contents, timed, cells))["throughput-by-width"].draw().axes
    axes.figure.canvas.draw()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1,500,000", "3,000,001"]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert "2,000,000" in labels
    assert not [text for text in labels if "e" in text]


def test_with_many_other_settings_a_point_is_the_median_of_cells(contents, timed):
    cells = [({"lr": lr, "batch_size": size}, 2.0 / size * lr) for lr in range(10, 19) for size in (1, 2)]
    drawn = figures_in(finished(contents, timed, cells))["throughput-by-batch_size"]
    assert "the median of the cells that differ in lr, with whiskers to their quartiles" in drawn.caption
    (line,) = drawn.draw().axes[0].containers
    expected = [sorted(1000 / (2.0 / size * lr) for lr in range(10, 19)) for size in (1, 2)]
    assert list(line.lines[0].get_ydata()) == pytest.approx([rates[4] for rates in expected])
    ends = [sorted(segment[:, 1]) for segment in line.lines[2][0].get_segments()]
    assert ends == [pytest.approx([rates[2], rates[6]]) for rates in expected]


def test_null_is_a_value_of_an_axis(contents, timed):
    cells = [
        ({"micro_batch": value, "device": device}, seconds)
        for value, seconds in ((None, 4.0), (64, 1.0))
        for device in ("cpu", "cuda")
    ]
    drawn = figures_in(finished(contents, timed, cells))["throughput-by-micro_batch"]
    assert "cpu: 1,000 samples per second at micro_batch=64, 250 at null" in drawn.description


def test_numbers_next_to_null_are_sorted_as_numbers(contents, timed):
    cells = [
        ({"micro_batch": value, "device": device}, seconds)
        for value, seconds in ((None, 4.0), (1000, 2.0), (64, 1.0), (200, 8.0))
        for device in ("cpu", "cuda")
    ]
    found = figures_in(finished(contents, timed, cells))
    (axes,) = found["throughput-by-micro_batch"].draw().axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["64", "200", "1000", "null"]
    (parallel,) = found["parallel"].draw().axes
    heights = {text.get_text(): text.get_position()[1] for text in parallel.texts}
    assert sorted(("64", "200", "1000", "null"), key=heights.__getitem__) == ["64", "200", "1000", "null"]


def test_lists_are_drawn_as_texts(contents, timed):
    cells = [
        ({"betas": betas, "batch_size": size}, seconds)
        for betas, seconds in (([0.9, 0.99], 4.0), ([0.5, 0.9], 1.0), ([0.1, 0.9], 2.0))
        for size in (1, 2)
    ]
    found = figures_in(finished(contents, timed, cells))
    text = "batch_size=1: 500 samples per second at betas=[0.1, 0.9], 250 at [0.9, 0.99], most at [0.5, 0.9] (1,000)"
    assert text in found["throughput-by-betas"].description
    assert "[0.5, 0.9]" in texts_of(found["parallel"])


def test_an_axis_without_effect_has_no_figure(contents, timed):
    cells = [({"lr": lr, "model": {"name": name}}, 2.0) for lr in (1, 2, 3) for name in ("a", "b")]
    assert not [name for name in figures_in(finished(contents, timed, cells)) if name.startswith("throughput-by")]


def test_texts_are_not_connected_by_lines(contents, timed):
    cells = [
        ({"model": {"name": name}, "device": device}, seconds)
        for name, seconds in (("wide", 4.0), ("narrow", 1.0))
        for device in ("cpu", "cuda")
    ]
    drawn = figures_in(finished(contents, timed, cells))["throughput-by-model"]
    (axes,) = drawn.draw().axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["narrow", "wide"]
    assert {line.lines[0].get_linestyle() for line in axes.containers} == {"None"}


def test_lines_have_the_names_of_settings(contents, timed):
    cells = [({"size": size, "epochs": epochs}, 0.5 * epochs + size) for size in (1, 2) for epochs in (7, 9)]
    drawn = figures_in(finished(contents, timed, cells))["throughput-by-size"]
    assert "epochs=7: " in drawn.description and "settings." not in drawn.description
