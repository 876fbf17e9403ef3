"""report.html in a real browser: accessibility, sorting, filtering, copying, and no network requests."""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from benchmarks.stored_sweep import write_stored_sweep
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Reason, Status
from runmanager.records.settings.signature import readable_name
from runmanager.records.storage.ownership import claim_run
from runmanager.results.result_files import write_tables
from runmanager.text import printable_value

from ..documented import example_in
from .pages import OpenPage

READERS: list[tuple[int, Literal["light", "dark"]]] = [(400, "light"), (400, "dark"), (1400, "light"), (1400, "dark")]
HOSTILE = (
    '<img src=x onerror="alert(1)">',
    "</script><script>alert(2)</script>",
    'a "quoted", one',
    "two\r\nlines",
    "学習 ±",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SweepPaths]:
    """Twelve runs, one of them failed: four cells with three seeds each."""
    with example_in(tmp_path_factory.mktemp("report")):
        paths = SweepPaths(Path("outputs/digits").resolve())
        write_tables(paths)
        yield paths


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> SweepPaths:
    """A thousand cells with one run each; runs have too few epochs to be compared, which saves time."""
    rates = [round(0.5 * 0.9**step, 6) for step in range(63)]
    paths = write_stored_sweep(tmp_path_factory.mktemp("many") / "many", num_runs=1000, num_epochs=2, lr=rates)
    write_tables(paths)
    return paths


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> SweepPaths:
    """Runs whose settings and messages would break a page that does not escape them."""
    paths = SweepPaths(tmp_path_factory.mktemp("hostile") / "<b>sweep & co")
    for number, text in enumerate(HOSTILE):
        config = {"lr": text, "device": "cpu"}
        name = f"{readable_name({'lr': number})}-{number:08x}"
        failed = {"status": Status.FAILED, "reason": Reason.EXCEPTION, "message": text}
        fields: dict[str, Any] = failed if number else {"status": Status.FINISHED}
        folder = claim_run(paths.run(name), RunRecord(name=name, signature=f"{number:064x}", config=config, **fields))
        folder.append(EpochRecord(epoch=1, loss=0.5, samples=10, epoch_seconds=1.0, warmup=True))
        folder.close()
    write_tables(paths)
    return paths


def column(page: Page, name: str, heading: str) -> list[str]:
    """The texts of a column in the rows that are shown."""
    headings = page.locator(f"#{name} .table th").all_text_contents()
    number = [each.strip() for each in headings].index(heading) + 1
    return page.locator(f"#{name} .table tbody tr:not([hidden]) td:nth-child({number})").all_text_contents()


def file_rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_report_opens_without_errors_or_requests(report: SweepPaths, visit: OpenPage) -> None:
    opened = visit(report.report.as_uri())
    assert opened.page.title() == "digits"
    assert (opened.errors, opened.requests) == ([], [report.report.as_uri()])


@pytest.mark.parametrize(("width", "scheme"), READERS)
def test_report_is_accessible(
    report: SweepPaths, visit: OpenPage, width: int, scheme: Literal["light", "dark"]
) -> None:
    """The page fits the window, and axe-core finds no serious problem of contrast, names, landmarks or keyboard use."""
    page = visit(report.report.as_uri(), width=width, scheme=scheme).page
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    found = Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert serious == [], json.dumps(serious, indent=2)[:4000]
    assert page.get_by_text("The best validation accuracy is 0.9766").bounding_box()["y"] < 300  # type: ignore[index]
    shown = page.locator("#figures figure:not(.charted) .drawing svg text, #figures .chart svg text")
    letters = shown.evaluate_all("all => all.map(each => each.getBoundingClientRect().height)")
    assert min(letters) >= 8  # pixels, from the top of a letter to its foot
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    assert dark == (scheme == "dark")
    assert page.locator("nav").is_visible() == (width == 1400)


def test_commands_wrap_between_words_in_narrow_windows(report: SweepPaths, visit: OpenPage) -> None:
    page = visit(report.report.as_uri(), width=400).page
    words = page.locator("code span").filter(has_text=re.compile("^.{1,20}$"))
    lines = "all => all.map(each => each.getBoundingClientRect().height / parseFloat(getComputedStyle(each).fontSize))"
    for width in range(320, 441, 4):
        page.set_viewport_size({"width": width, "height": 900})
        heights = words.evaluate_all(lines)
        assert len(heights) > 8 and max(heights) < 2, f"a word in two lines at {width} pixels"


def test_rows_are_sorted_by_keyboard_as_numbers_with_missing_values_last(report: SweepPaths, visit: OpenPage) -> None:
    page = visit(report.report.as_uri()).page
    heading = page.locator("#results th[data-name=val_accuracy]")
    page.locator("#results").get_by_role("button", name="Download CSV").focus()
    while page.evaluate("document.activeElement.closest('th')?.textContent") != "validation accuracy":
        assert page.evaluate("document.activeElement.closest('#results')") is not None
        page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert [each[:6] for each in column(page, "results", "validation accuracy")] == [
        "0.8606",
        "0.9719",
        "0.9744",
        "0.9766",
    ]
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    assert [each[:6] for each in column(page, "results", "validation accuracy")] == [
        "0.9766",
        "0.9744",
        "0.9719",
        "0.8606",
    ]
    page.locator("#results").get_by_role("button", name="more columns").click()
    page.locator("#results th", has_text="loss").first.get_by_role("button").click()
    losses = [float(each.split()[0]) for each in column(page, "results", "loss")]
    # Numeric text collation would put 0.3168 first.
    assert losses == sorted(losses) == [0.0532, 0.05813, 0.0638, 0.3168]
    for direction in ("ascending", "descending"):
        page.locator("#results th", has_text="reason").get_by_role("button").click()
        assert page.locator("#results th", has_text="reason").get_attribute("aria-sort") == direction
        assert column(page, "results", "reason") == ["diverged", "", "", ""]
    assert page.locator("#results [aria-sort]").count() == 1


def test_a_row_of_several_seeds_is_copied_as_one_line_per_run(report: SweepPaths, visit: OpenPage) -> None:
    page = visit(report.report.as_uri()).page
    header, *runs = file_rows(report.results("csv"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#results").get_by_role("button", name="Copy as CSV").click()
    page.get_by_text("Copied as CSV.").wait_for()
    copied = rows_of(page.evaluate("navigator.clipboard.readText()"))
    assert copied[0] == header
    assert sorted(copied[1:]) == sorted(runs)


def test_copying_works_without_the_clipboard_api(report: SweepPaths, visit: OpenPage) -> None:
    page = visit(report.report.as_uri()).page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate(
        "window.original = navigator.clipboard; Object.defineProperty(navigator, 'clipboard', { value: undefined })"
    )
    page.locator("#failures").get_by_role("button", name="Copy as CSV").click()
    page.get_by_text("Copied as CSV.").wait_for()
    copied = rows_of(page.evaluate("window.original.readText()"))
    assert copied[0] == ["run", "status", "reason", "what happened"]
    assert copied[1][1:] == ["failed", "diverged", "the loss was nan in epoch 3"]


def test_a_thousand_rows_are_filtered_sorted_and_downloaded(many: SweepPaths, visit: OpenPage, tmp_path: Path) -> None:
    assert many.report.stat().st_size < 5_000_000
    opened = visit(many.report.as_uri())
    page, table = opened.page, opened.page.locator("#results .table")
    count, field = table.get_by_role("status"), table.get_by_role("searchbox")
    assert count.text_content() == "1,000 rows; the first 50 are shown"
    assert len(column(page, "results", "lr")) == 50
    field.fill("batch_size>=10000 device==cuda and lr < 0.001")
    header, *rows = file_rows(many.results("csv"))
    lr, size, device = (header.index(name) for name in ("lr", "batch_size", "device"))
    rows = [row for row in rows if float(row[lr]) < 0.001 and int(row[size]) >= 10_000 and row[device] == "cuda"]
    assert count.text_content() == f"{len(rows)} of 1,000 rows"
    table.locator("th", has_text="lr").first.get_by_role("button").click()
    rows.sort(key=lambda row: float(row[lr]))
    assert column(page, "results", "lr") == [row[lr] for row in rows]
    with page.expect_download() as download:
        table.get_by_role("button", name="Download CSV").click()
    assert download.value.suggested_filename == "results.csv"
    download.value.save_as(tmp_path / "filtered.csv")
    assert file_rows(tmp_path / "filtered.csv") == [header, *rows]
    field.fill("cuda 0.001")
    assert 0 < len(column(page, "results", "lr")) <= 50
    field.fill("nothing like it")
    assert count.text_content() == "0 of 1,000 rows"
    field.fill("batchsize=1000 and lr<1")
    assert count.text_content() == "0 of 1,000 rows; column batchsize does not exist"
    field.fill("not device==cuda")
    assert count.text_content() == "0 of 1,000 rows; only runmanager table --where supports not, in and parentheses"
    found = {}
    for condition in ("batch_size==10000", "lr<0.001", "batch_size==10000 or lr<0.001", "batch_size==10000 or "):
        field.fill(condition)
        found[condition] = int((count.text_content() or "").partition(" of ")[0])
    field.fill("batch_size==10000 and lr<0.001")
    first, second, either, incomplete = found.values()
    assert either == first + second - int((count.text_content() or "").partition(" of ")[0])
    assert first == incomplete and first < either < 1000
    field.fill("")
    table.get_by_role("button", name="Show all 1,000").click()
    assert len(column(page, "results", "lr")) == 1000
    assert not table.get_by_role("button", name="Show all").is_visible()
    assert (opened.errors, opened.requests) == ([], [many.report.as_uri()])


def test_headings_of_a_long_table_stay_visible(many: SweepPaths, visit: OpenPage) -> None:
    page = visit(many.report.as_uri()).page
    box = page.locator("#results .wide")
    box.evaluate("box => { box.scrollTop = 500 }")
    assert box.evaluate("box => box.scrollTop") == 500
    top = box.bounding_box()["y"]  # type: ignore[index]
    assert page.locator("#results th").first.bounding_box()["y"] == pytest.approx(top, abs=2)  # type: ignore[index]


def test_user_text_is_escaped_and_copied_unchanged(hostile: SweepPaths, visit: OpenPage) -> None:
    opened = visit(hostile.report.as_uri())
    page = opened.page
    assert (opened.errors, opened.requests) == ([], [hostile.report.as_uri()])
    assert page.title() == "<b>sweep & co"
    assert page.locator("#results img, #failures img, h1 b").count() == 0
    shown = {" ".join(text.split()) for text in column(page, "results", "lr")}
    assert shown == {" ".join(printable_value(text).split()) for text in HOSTILE}
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#results").get_by_role("button", name="Copy as CSV").click()
    page.get_by_text("Copied as CSV.").wait_for()
    assert rows_of(page.evaluate("navigator.clipboard.readText()")) == file_rows(hostile.results("csv"))


def test_the_printed_page_has_no_controls_and_is_not_clipped(report: SweepPaths, visit: OpenPage) -> None:
    page = visit(report.report.as_uri(), width=1032, scheme="dark").page  # A4 landscape without its margins
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.get_by_role("button", name="Copy as CSV").first.is_visible()
    assert not page.locator("nav").is_visible()
    for selector in ("table", "svg"):
        widths = page.locator(selector).evaluate_all("all => all.map(each => each.getBoundingClientRect().right)")
        assert max(widths) <= 1032
    cut = "all => all.filter(each => getComputedStyle(each).overflow !== 'visible').length"
    assert page.locator(".wide").evaluate_all(cut) == 0


def test_without_javascript_all_rows_are_shown_and_controls_are_hidden(many: SweepPaths, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(many.report.as_uri())
    assert page.locator("#results tbody tr:visible").count() == 1000
    assert page.locator("button:visible, input:visible").count() == 0
    context.close()


def test_a_narrow_page_hides_the_columns_that_matter_least_until_they_are_asked_for(
    report: SweepPaths, visit: OpenPage
) -> None:
    page = visit(report.report.as_uri(), width=900).page
    table = page.locator("#results .table")
    button, wide = table.locator("[data-part=columns]"), table.locator(".wide")
    shown = table.locator("th:visible")
    expect(button).to_have_text("Show 5 more columns")
    names = shown.evaluate_all("all => all.map(each => each.dataset.name ?? each.textContent)")
    assert names == ["lr", "batch_size", "seeds", "status", "reason", "val_accuracy", *names[-2:]]
    assert names[-2:] == ["epoch_seconds", "samples_per_second"]
    assert wide.evaluate("it => it.scrollWidth <= it.clientWidth")
    assert "peak memory" in (button.get_attribute("title") or "")
    button.click()
    expect(button).to_have_text("Show fewer columns")
    assert shown.count() == table.locator("th").count() == 13
    button.click()
    page.set_viewport_size({"width": 1400, "height": 900})
    expect(button).to_have_text("Show 3 more columns")
    page.emulate_media(media="print")
    assert shown.count() == 13
