"""The figure of a comparison."""

import re

import pytest

from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.figures.catalog import sweep_figures
from runmanager.results.tables.results_table import result_rows

from .drawn_figures import figures_in, finished, texts_of


def test_each_pair_has_a_row_with_its_verdict(grid):
    drawn = grid["speedups"]
    assert re.fullmatch(
        r"Of 2 pairs: 1 faster, 1 slower\. The largest is of batch_size=1000: 10, 95% interval [89]\.\d+ to 11\.\d; "
        r"the smallest is of batch_size=100: 0\.5, 95% interval 0\.4\d+ to 0\.5\d+\.",
        drawn.description,
    )
    texts = texts_of(drawn)
    assert [text for text in texts if text.startswith("batch_size")] == ["batch_size=1000", "batch_size=100"]
    assert {"faster", "slower", "speedup: cuda / cpu, samples per second"} <= set(texts)
    (axes,) = drawn.draw().axes
    assert axes.get_xscale() == "log"
    assert not axes.patches  # the drift is in the intervals


@pytest.mark.parametrize(("drift", "where"), [(0.01, "outside the grey band."), (0.0, "on one side of the line.")])
def test_the_caption_says_where_an_interval_must_lie_for_a_difference(contents, timed, drift, where):
    """Epochs side by side have a tolerance, which is a band."""
    paired = {"measure": {"name": "paired"}}
    cells = [
        ({"lr": lr, "device": device} | paired, timed([9.0] + [2.0] * 5), {"session": str(lr)})
        for lr in (1, 2)
        for device in ("cpu", "cuda")
    ]
    sweep = contents(*cells)
    options = CompareOptions(metric="epoch_seconds", paired_drift=drift)
    tables = {"results": result_rows(sweep, None), "comparison": compare(sweep, None, options)}
    drawn = {figure.name: figure for figure in sweep_figures(sweep, **tables)}["speedups"]
    assert drawn.caption.endswith(f"A difference is reported if the whole interval lies {where}")
    bands = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in drawn.draw().axes[0].patches]
    assert bands == [pytest.approx((0.99, 1.01))] * 2 * (drift > 0)


def test_unmeasured_pairs_are_counted_and_a_single_pair_has_no_figure(contents, timed):
    cells = [({"batch_size": size, "device": device}, 2.0) for size in (1, 2, 3) for device in ("cpu", "cuda")]
    assert "1 pair could not be measured." in figures_in(finished(contents, timed, cells[:-1]))["speedups"].caption
    assert "speedups" not in figures_in(finished(contents, timed, cells[:3]))


def test_an_even_sample_of_many_pairs_is_drawn(contents, timed):
    cells = [
        ({"lr": lr, "device": device}, 1.0 + lr * (device == "cpu"))
        for lr in range(1, 51)
        for device in ("cpu", "cuda")
    ]
    drawn = figures_in(finished(contents, timed, cells))["speedups"]
    assert "(24 of 50, at even steps)" in drawn.caption
    labels = [text for text in texts_of(drawn) if text.startswith("lr=")]
    assert (len(labels), labels[0], labels[-1]) == (24, "lr=50", "lr=1")


def test_intervals_of_very_few_runs_do_not_hide_the_others(contents, timed):
    seconds = {"cpu": (2.0, 8.0), "cuda": (1.0, 40.0)}
    cells = [
        ({"batch_size": size, "device": device, "seed": seed}, seconds[device][seed if size == 100 else 0])
        for size in (100, 1000)
        for seed in (0, 1)
        for device in ("cpu", "cuda")
    ]
    sweep = finished(contents, timed, cells)
    drawn = figures_in(sweep)["speedups"]
    widest = max(row["ci_high"] for row in compare(sweep, None).rows)
    (axes,) = drawn.draw().axes
    low, high = axes.get_xlim()
    assert high < 24 < widest and low > 0.02
    assert drawn.caption.endswith("Intervals that reach the frame go on beyond it.")
