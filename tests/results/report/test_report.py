"""The content of report.html."""

import dataclasses
import datetime
import html
import html.parser
import os
import re

import msgspec
import pytest

from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import Turn
from runmanager.records.run.status import Reason, Status
from runmanager.records.sweep.sweep_record import SweepCommand, write_cells
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.matched_pairs import match_sides
from runmanager.results.figures.catalog import paired_rounds
from runmanager.results.load.loader import read_results
from runmanager.results.report.report import render_report
from runmanager.results.result_files import write_tables
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.tables.results_table import result_rows
from runmanager.results.tables.text_formats import to_csv

NOON = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)
EVIL = "<script>alert('x')</script>"


def page_of(sweep):
    return without_scripts(render_report(SweepSnapshot.read(sweep.paths), now=NOON))


def without_scripts(page):
    return re.sub("(<script[^>]*>).*?</script>", r"\1</script>", page, flags=re.DOTALL)


class Checker(html.parser.HTMLParser):
    """Collects references to other resources, and checks that every tag is closed."""

    def __init__(self):
        super().__init__()
        self.references, self.open, self.tags = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.references += [
            value for name, value in attributes if name in ("src", "href", "xlink:href", "action", "srcset", "data")
        ]
        if tag not in ("meta", "link", "br", "wbr", "img"):
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


def test_the_answer_is_first_and_all_sections_exist(filled):
    page = page_of(filled)
    answer = page.index("cuda is 4.0 times as fast as cpu at lr=0.1 [2.8, 5.8].")
    headings = [
        page.index(f">{words}</h2>")
        for words in (
            *("What to do next", "Comparison", "Figures", "Results", "Runs without a result", "How it was measured"),
        )
    ]
    assert [answer, *headings] == sorted([answer, *headings])
    assert "5 runs: 3 finished, 1 failed, 1 pending." in page
    for fact in ("Zen 4", "torch 2.15.0", "0123456789abcdef", "samples per second", "validation accuracy"):
        assert fact in page
    assert page.index("1 run has no result: 1 failed (exception).") < headings[0]


def test_how_far_the_next_is_behind_is_told_once(sweep, timed):
    for seed in range(3):
        for lr, reached in ((0.1, 0.9), (0.2, 0.7)):
            epochs = [
                msgspec.structs.replace(each, val_accuracy=reached + 0.01 * seed) for each in timed([9.0] + [1.0] * 2)
            ]
            sweep.run({"lr": lr, "device": "cpu", "seed": seed}, epochs)
    page = page_of(sweep)
    told = page[page.index('class="answer"') : page.index('id="next"')]
    assert "Next is lr=0.2" in told and "0.2000, at least" in told
    assert "worse" not in told and "below" not in told


def test_waiting_is_suggested_only_if_another_driver_is_alive(filled):
    assert "Wait for" not in page_of(filled)
    write_cells(filled.paths, (), SweepCommand(("a",), axes={}), driver=ProcessIdentity.current())
    assert "Wait for" not in page_of(filled)  # a driver writes its report when it is done
    write_cells(filled.paths, (), SweepCommand(("a",), axes={}), driver=ProcessIdentity.of(os.getppid()))
    assert "Wait for 1 run:" in page_of(filled)


def test_the_page_of_an_unfinished_sweep_starts_with_its_time_and_missing_runs(filled, timed):
    missing = "Made at 2026-11-21 12:00 UTC, before the end of the sweep: of 5 runs 1 had not started"
    assert f"{missing}, and no process was working on the sweep." in page_of(filled)
    write_cells(filled.paths, (), SweepCommand(("a",), axes={}), driver=ProcessIdentity.of(os.getppid()))
    filled.run({"lr": 0.3, "device": "cpu"}, timed([9.0]), status=Status.RUNNING)
    page = page_of(filled)
    start = html.unescape(re.sub("<[^>]*>", "", page[: page.index('class="answer"')]))
    missing = "of 6 runs 1 was still running and 1 had not started"
    assert f"{missing}. runmanager report {filled.paths.root} rebuilds this page." in start


def test_the_page_of_a_completed_sweep_does_not_depend_on_the_time(sweep):
    sweep.run({"lr": 0.1})
    write_tables(sweep.paths, now=NOON)
    first = sweep.paths.report.read_text()
    write_tables(sweep.paths)
    assert sweep.paths.report.read_text() == first
    assert "Made at" not in first


def test_another_axis_is_compared_if_there_is_only_one_device(sweep, timed):
    """The best settings come first, as the speed of a learning rate is not the main question."""
    for lr, size, seconds in ((0.1, 1, 4.0), (0.1, 2, 2.0), (0.2, 1, 5.0), (0.2, 2, 2.0)):
        more = [seconds] * (lr == 0.2 and size == 2)
        sweep.run({"lr": lr, "batch_size": size, "device": "cpu"}, timed([9.0] + [seconds] * 6 + more))
    page = page_of(sweep)
    expected = (
        *(
            "The best validation accuracy is",
            "Next is",
            "batch_size=2 is 2.24 times as fast as batch_size=1 [1.46, 3.43], the geometric mean over 2 pairs",
        ),
        *(">Comparison</h2>", "As every run has device=cpu, what is compared is batch_size, along"),
    )
    positions = [page.index(text) for text in expected]
    assert positions == sorted(positions)
    assert "what else varies is compared with <code><span>runmanager</span> <span>compare</span> " in page
    assert "<span>--axis</span> <span>lr</span></code>." in page
    assert "Speedup of each pair" in page
    headings = [page.index(f">{words}</h2>") for words in ("Figures", "Results", "Comparison")]
    assert headings == sorted(headings)  # quality is asked


def test_the_comparison_has_the_pairs_with_an_answer(sweep, timed):
    skipped = {"status": Status.SKIPPED, "reason": Reason.DEVICE_UNAVAILABLE}
    for size in (1, 2):
        sweep.run({"batch_size": size, "device": "cpu", "clip": None}, timed([9.0] + [8.0 / size**3] * 6))
        sweep.run({"batch_size": size, "device": "cpu", "clip": 0.5}, timed([9.0] + [8.0 / size**3] * 6))
        sweep.run({"batch_size": size, "device": "cuda", "clip": None}, [], **skipped)
    section = page_of(sweep).partition('id="comparison"')[2].partition("</section>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in section.split("<tr")[2:]]
    assert [row[:3] for row in rows] == [["cpu", "null", "batch_size"], ["cpu", "0.5", "batch_size"]]  # null is a value
    assert (
        "4 pairs are not measured and left out; <code><span>compare</span> <span>--all</span></code> has their reasons."
        in section
    )


def test_a_page_without_a_measured_pair_has_no_comparison_and_words_for_reasons(sweep, timed):
    sweep.run({"lr": 0.1, "device": "cpu"}, timed([9.0] + [4.0] * 6))
    sweep.run({"lr": 0.1, "device": "cuda"}, [], status=Status.SKIPPED, reason=Reason.DEVICE_UNAVAILABLE)
    page = page_of(sweep)
    assert 'id="comparison"' not in page and 'href="#comparison"' not in page
    assert "cuda and cpu could not be compared: cuda: skipped (device unavailable)." in page
    assert '<td data-value="device_unavailable">device unavailable</td>' in page  # a filter takes either
    assert "1 run has no result: 1 skipped (device unavailable)." in page


def test_the_page_is_well_formed_and_loads_nothing(filled):
    page = render_report(SweepSnapshot.read(filled.paths), now=NOON)
    namespaces = ("2000/svg", "1999/xlink", "2000/xmlns/", "XML/1998/namespace")
    for name in namespaces:  # names, in the library and in a saved figure
        page = page.replace(f"http://www.w3.org/{name}", "")
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert {target[:1] for target in checker.references if target != "data:,"} <= {"#"}
    assert checker.tags.count("script") == 3  # the data, the library, the page's own
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page
    assert "url(http" not in page
    assert checker.tags.count("svg") == 2
    assert "prefers-color-scheme: dark" in page


def test_a_row_of_several_seeds_has_a_csv_line_per_run(sweep, timed):
    for seed, seconds in ((1, 3.0), (2, 2.0)):
        for lr in (0.1, 0.2):
            sweep.run({"lr": lr, "seed": seed}, timed([9.0, seconds]))
    page = page_of(sweep)
    found = re.findall(r'<tr data-runs="([^"]*)" data-csv="([^"]*)"', page)
    rows = {tuple(html.unescape(text).splitlines()) for _, text in found}
    assert sorted(place for places, _ in found for place in places.split()) == ["0", "1", "2", "3"]
    stored = to_csv(result_rows(*read_results(sweep.paths))).splitlines()
    assert {line for lines in rows for line in lines} == set(stored[1:])
    assert sorted(len(lines) for lines in rows) == [2, 2]
    assert f'data-header="{stored[0]}\n"' in page
    assert "The copied CSV has a line for each run." in page
    assert "--each" not in page


def test_the_certainty_of_the_best_and_the_failures_come_first(filled, timed):
    filled.run({"lr": 0.5, "device": "cpu"}, timed([9.0] + [2.0] * 9))
    filled.run({"lr": 0.3, "device": "cpu"}, [], status=Status.KILLED, reason=Reason.SIGNAL, notes=("one note",))
    filled.run({"lr": 0.4, "device": "cpu"}, [], status=Status.KILLED, reason=Reason.SIGNAL, notes=("one note",))
    page = page_of(filled)
    certainty, failed, steps = (
        page.index(words) for words in ("Next is lr=", "3 runs have no result: ", "What to do next</h2>")
    )
    assert certainty < failed < steps
    assert '<a href="#failures">3 runs have no result: 2 killed (signal), 1 failed (exception).</a>' in page
    assert "lr=0.3,device=cpu" in page
    assert page.count("one note") == 1  # of two runs
    assert "and 1 more: one note" in page


def test_the_clock_is_explained_where_epochs_were_timed(filled, make_sweep):
    script = make_sweep("script")
    script.run({"lr": 0.1}, [], summary={"val_accuracy": 0.9})
    assert ["synchronised" in page_of(each) for each in (filled, script)] == [True, False]


def test_user_text_is_escaped(filled):
    page = page_of(filled)
    assert EVIL not in page
    assert page.count("&lt;script&gt;") == 3  # the message, the same in the line for CSV, and the note


def test_figures_have_unique_ids_and_use_the_text_colour_of_the_page(filled):
    ids = re.findall(r'<(?:path|clipPath|g|svg)[^>]* id="([^"]+)"', page_of(filled))
    defined = [name for name in ids if re.match(r"[mp][0-9a-f]{10}$", name)]
    assert defined
    assert len(defined) == len(set(defined))
    assert "currentColor" in page_of(filled)


def test_the_page_is_reproducible(filled):
    assert page_of(filled) == page_of(filled)


def test_labels_are_shown_literally(sweep, timed):
    for lr in ("$x$", "_y", "学習"):
        sweep.run({"lr": lr}, timed([1.0, 2.0]))
    page = page_of(sweep)
    for text in (">lr=$x$<", ">lr=_y<", ">lr=学習<"):
        assert text in page


@pytest.fixture
def measured_in_turns(contents, timed):
    """A sweep in memory with two sides of `num_rounds` rounds each; the candidate is twice as fast except in one."""

    def make(num_rounds):
        config = {"lr": 0.1, "measure": {"name": "paired", "axis": "device"}}
        runs = [(config | {"device": device}, timed([9.0]), {"session": "a"}) for device in ("cpu", "cuda")]
        sweep = contents(*runs)
        rates = [[100.0] * num_rounds, [5000.0, *([200.0] * (num_rounds - 1))]]
        turns = [
            [Turn("a", at, 1, 10, 1000, 1000 / rate) for at, rate in enumerate(of_run, start=1)] for of_run in rates
        ]
        stored = [dataclasses.replace(run, turns=of_run) for run, of_run in zip(sweep.runs, turns, strict=True)]
        return dataclasses.replace(sweep, runs=stored)

    return make


@pytest.mark.parametrize(
    ("num_rounds", "per_ratio", "num_dots"),
    [(8, "each round, 8 rounds", 7), (450, "3 rounds at a time, 450 rounds", 149)],
)
def test_the_rounds_of_a_pair_have_a_figure(measured_in_turns, num_rounds, per_ratio, num_dots):
    sweep = measured_in_turns(num_rounds)
    snapshot = SweepSnapshot(sweep, None)
    (found,) = snapshot.paired_rounds
    assert (found.labels, found.count) == (("cpu", "cuda"), num_rounds)
    assert sorted(found.ratios)[:num_dots] == pytest.approx([2.0] * num_dots)
    page = without_scripts(render_report(snapshot, now=NOON))
    assert f"cuda and cpu: the ratio of their samples per second in {per_ratio} in order." in page
    assert page.count("<svg") == 1  # a single epoch has no learning curve


def test_incomparable_sides_have_no_figure_of_rounds(measured_in_turns, host):
    sweep = measured_in_turns(8)
    other = msgspec.structs.replace(sweep.runs[0].record, environment=msgspec.structs.replace(host, torch_threads=9))
    sweep = dataclasses.replace(sweep, runs=[dataclasses.replace(sweep.runs[0], record=other), sweep.runs[1]])
    assert paired_rounds(match_sides(sweep, None, CompareOptions())) == []
    assert paired_rounds(match_sides(measured_in_turns(5), None, CompareOptions())) == []


def test_reasons_are_numbered_notes_below_the_comparison(filled):
    page = page_of(filled)
    reasons = re.findall(r'<p class="note">(\[1\] one side ran after the other[^<]*)</p>', page)
    assert len(reasons) == 1
    assert "<td>[1]</td>" in page


def test_figures_of_many_runs_say_how_many_are_shown(sweep, timed):
    for lr in range(45):
        sweep.run({"lr": lr}, timed([1.0, 2.0 + lr]))
    page = page_of(sweep)
    assert "Throughput of each run (the 24 fastest of 45 shown)" in page
    assert "(the 12 best of 45 in colour)" in page


def test_a_sweep_without_runs_has_a_page(sweep):
    page = page_of(sweep)
    assert "No runs yet." in page
    assert "<svg" not in page
