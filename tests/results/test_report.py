"""The page for people."""

import html.parser
import re

import pytest

from runmanager.records.states import Reason, Status
from runmanager.results.comparison import compare
from runmanager.results.reading import read_results
from runmanager.results.report import report_page
from runmanager.results.table import result_rows

EVIL = "<script>alert('x')</script>"


def page_of(sweep):
    stored = read_results(sweep.paths)
    return report_page(*stored, results=result_rows(*stored), comparison=compare(*stored))


class Checker(html.parser.HTMLParser):
    """Collects what would leave the file, and whether every tag is closed."""

    def __init__(self):
        super().__init__()
        self.asked, self.open, self.tags = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.asked += [
            value for name, value in attributes if name in ("src", "href", "xlink:href", "action", "srcset", "data")
        ]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def filled(sweep, timed):
    grid = [{"lr": lr, "device": device} for lr in (0.1, 0.2) for device in ("cpu", "cuda")]
    sweep.plan(*grid, {"lr": "$a$ _b", "device": "cpu"})
    for config in grid[:3]:
        sweep.run(config, timed([9.0] + [0.5 if config["device"] == "cuda" else 2.0] * 6))
    failed = {"status": Status.FAILED, "reason": Reason.EXCEPTION, "message": EVIL, "notes": (f"no graph: {EVIL}",)}
    sweep.run(grid[3], [], **failed)
    return sweep


def test_the_answer_stands_first_and_everything_is_on_the_page(filled):
    page = page_of(filled)
    answer = page.index("cuda is 4.0 times faster than cpu at lr=0.1 [4.0, 4.0].")
    headings = [
        page.index(f"<h2>{words}</h2>") for words in ("Comparison", "Figures", "Results", "How it was measured")
    ]
    assert [answer, *headings] == sorted([answer, *headings])
    assert "5 runs: 3 finished, 1 failed, 1 pending." in page
    for fact in ("Zen 4", "torch 2.15.0", "0123456789abcdef", "samples per second", "validation accuracy"):
        assert fact in page
    assert "Runs without a result" in page


def test_the_page_is_whole_and_asks_for_nothing(filled):
    page = page_of(filled)
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert {target[:1] for target in checker.asked if target != "data:,"} <= {"#"}
    assert "script" not in checker.tags
    assert "http" not in page
    assert "@import" not in page
    assert "url(http" not in page
    assert checker.tags.count("svg") == 2
    assert "prefers-color-scheme: dark" in page


def test_what_others_wrote_is_escaped(filled):
    page = page_of(filled)
    assert EVIL not in page
    assert page.count("&lt;script&gt;") == 2


def test_the_figures_share_no_id_and_take_the_pages_colour(filled):
    ids = re.findall(r'<(?:path|clipPath|g|svg)[^>]* id="([^"]+)"', page_of(filled))
    defined = [name for name in ids if re.match(r"[mp][0-9a-f]{10}$", name)]
    assert defined
    assert len(defined) == len(set(defined))
    assert "currentColor" in page_of(filled)


def test_the_same_runs_give_the_same_page(filled):
    assert page_of(filled) == page_of(filled)


def test_labels_are_shown_as_they_are_written(sweep, timed):
    for lr in ("$x$", "_y", "学習"):
        sweep.run({"lr": lr}, timed([1.0, 2.0]))
    page = page_of(sweep)
    for text in (">lr=$x$<", ">lr=_y<", ">lr=学習<"):
        assert text in page


def test_many_runs_say_how_many_are_shown(sweep, timed):
    for lr in range(45):
        sweep.run({"lr": lr}, timed([1.0, 2.0 + lr]))
    page = page_of(sweep)
    assert "Throughput of each run (the 40 fastest of 45 shown)" in page
    assert "(the 12 best of 45 in colour)" in page


def test_a_sweep_without_runs_has_a_page_too(sweep):
    page = page_of(sweep)
    assert "No runs yet." in page
    assert "<svg" not in page
