"""Properties of all figures: size, hostile text, style, and the formats SVG and PNG."""

import math
import re
import xml.etree.ElementTree as ET

import matplotlib
import pytest

from runmanager.records.run.status import Reason, Status
from runmanager.results.figures.figure import inline_svg, render

from .drawn_figures import PHASES, SVG, figures_in, file_of, finished, numbers_in, texts_in, texts_of

EVIL = ("a\x00b\x1bc\nd", "$x_1^2$", "_hidden", "<script>&'\"", "学習", "n" * 3000, "a b " * 500)


@pytest.mark.parametrize("seeds", [1, 10])
def test_figures_of_a_thousand_runs_are_small(contents, timed, seeds):
    epochs = timed([1.0] * 20, **dict.fromkeys(PHASES, 0.1))
    cells = [
        {"lr": index // 2 + 1, "batch_size": index % 2, "seed": seed}
        for index in range(1000 // seeds)
        for seed in range(seeds)
    ]
    found = figures_in(contents(*((config, epochs, {}) for config in cells)))
    assert {"throughput", "phases", "curves", "parallel"} <= set(found)
    assert sum(len(inline_svg(drawn)) for drawn in found.values()) < 1_500_000


def test_hostile_names_are_shown_literally(contents, timed):
    cells = [({"data": name, "model": index % 2}, 1.0 + index) for index, name in enumerate(EVIL)]
    found = figures_in(finished(contents, timed, cells, **dict.fromkeys(PHASES, 0.1)))
    assert {"throughput", "phases", "curves", "parallel"} <= set(found)
    for name, drawn in found.items():
        file = file_of(drawn)  # a control character would be invalid XML
        shown = "\n".join(texts_in(file))
        # `parallel` labels only some values, and `speedups` labels pairs.
        expected = [] if name in ("parallel", "speedups") else [*EVIL[1:5], r"a\x00b\x1bc"]
        assert [text for text in expected if text not in shown] == []
        assert all(map(math.isfinite, numbers_in(file)))
    assert "<script>" not in inline_svg(found["throughput"])


def test_long_labels_leave_space_for_the_plot(contents, timed):
    names = [f"a_setting_of_many_{number}" for number in range(5)]
    sweep = contents(*((dict.fromkeys(names, value), timed([1.0] * 7), {}) for value in range(3)))
    for drawn in figures_in(sweep).values():  # if no space is left, matplotlib warns, which is an error in tests
        assert "a_setting_of_many_4=2" in "".join(texts_of(drawn)).replace("\n", "")


def test_failed_runs_have_no_figures_and_a_single_run_has_some(contents, timed):
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


def test_inline_figures_use_the_colours_of_the_page_and_files_are_standalone(grid):
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


def test_ids_are_unique_among_the_figures_of_a_page(grid):
    page = "".join(map(inline_svg, grid.values()))
    defined = re.findall(r'<(?:path|clipPath|pattern) id="([^"]+)"', page)
    assert defined
    assert len(defined) == len(set(defined))


def test_the_users_matplotlib_style_has_no_effect_and_is_restored(grid):
    expected = render(grid["curves"], "svg")
    with matplotlib.rc_context(
        {"text.usetex": True, "font.size": 30, "savefig.bbox": "tight", "figure.facecolor": "red"}
    ):
        before = dict(matplotlib.rcParams)
        assert render(grid["curves"], "svg") == expected
        assert dict(matplotlib.rcParams) == before
