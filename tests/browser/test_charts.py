"""The report's interactive figures in a real browser: every control, linked selection, the address, copying."""

import csv
import json
import re
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from benchmarks.stored_sweep import write_stored_sweep
from runmanager.records.files.paths import SweepPaths
from runmanager.results.result_files import write_tables

from .pages import OpenPage, Visit

READERS: list[tuple[int, Literal["light", "dark"]]] = [(400, "light"), (400, "dark"), (1400, "light"), (1400, "dark")]
NUM_RUNS, NUM_CELLS = 96, 48
INTERACTIVE = ("speedups", "throughput", "curves", "parallel", "scatter")
expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> SweepPaths:
    """Ninety-six runs: 48 cells with two seeds each, half of them on each device; one has a log."""
    paths = write_stored_sweep(
        tmp_path_factory.mktemp("charts") / "digits",
        num_runs=NUM_RUNS,
        num_epochs=12,
        lr=(0.1, 0.01, 0.001),
        num_metrics=1,
    )
    (sorted(paths.runs.iterdir())[0] / "run.log").write_text("loading\n<b>epoch 12 done</b>\n")
    write_tables(paths)
    return paths


def figure(page: Page, name: str) -> Locator:
    """A figure, drawn: it is scrolled to. So are those above it, which would else move it as they are drawn."""
    for each in page.locator("figure.charted").all():
        each.scroll_into_view_if_needed()
        each.locator(".chart svg").wait_for()
        if each.get_attribute("data-figure") == name:
            break
    return page.locator(f'figure[data-figure="{name}"]')


def legend(page: Page, name: str = "curves") -> list[str]:
    return [text.strip() for text in figure(page, name).locator(".legend button").all_text_contents()]


def count(page: Page) -> str:
    return page.locator(".selection .selected").text_content() or ""


def rows(page: Page, table: str = "results") -> Locator:
    return page.locator(f"#{table} tbody tr:not([hidden])")


def address(page: Page) -> str:
    return str(page.evaluate("decodeURIComponent(location.hash.replaceAll('+', ' '))"))


def assert_quiet(visit: Visit, report: SweepPaths) -> None:
    """No error, no warning, and no request but the page itself."""
    assert visit.errors == []
    assert {url.partition("#")[0] for url in visit.requests if not url.startswith(("data:", "blob:"))} == {
        report.report.as_uri()
    }


@pytest.mark.parametrize(("width", "scheme"), READERS)
def test_all_figures_are_drawn_in_every_window_and_accessible(
    report: SweepPaths, visit: OpenPage, width: int, scheme: Literal["light", "dark"]
) -> None:
    visited = visit(report.report.as_uri(), width=width, scheme=scheme)
    page = visited.page
    for name in INTERACTIVE:
        drawn = figure(page, name)
        assert not drawn.locator(".drawing").count() or drawn.locator(".drawing").bounding_box()["width"] <= 1  # type: ignore[index]
        colour = "rgb(27, 31, 36)" if scheme == "light" else "rgb(230, 237, 243)"
        fills = drawn.locator(".chart svg text").evaluate_all("all => all.map(each => getComputedStyle(each).fill)")
        assert colour in fills
    other: Literal["light", "dark"] = "dark" if scheme == "light" else "light"
    for each in (other, scheme):
        before = figure(page, "curves").locator(".chart svg").inner_html()
        page.emulate_media(color_scheme=each)
        page.wait_for_function(
            "before => document.querySelector('[data-figure=curves] .chart svg').innerHTML !== before", arg=before
        )
    figure(page, "curves").locator("summary", has_text="Copy or save").click()
    rows(page).first.locator("td").nth(1).click()
    expect(page.locator(".panel")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    found = Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert serious == [], json.dumps(serious, indent=2)[:4000]
    assert_quiet(visited, report)


def test_curves_follow_their_controls(report: SweepPaths, visit: OpenPage) -> None:
    visited = visit(report.report.as_uri())
    page = visited.page
    curves = figure(page, "curves")
    choices = {
        label: curves.get_by_label(label, exact=True).locator("option").all_text_contents()
        for label in ("Metric", "Over", "Group by", "Smoothing")
    }
    assert choices["Metric"] == [
        *("all", "accuracy: validation, training (dashed)", "loss: validation, training (dashed)"),
        *("val/metric_0", "samples per second", "seconds per epoch"),
    ]
    scatter = figure(page, "scatter").get_by_label("x", exact=True).locator("option")
    named = {each.get_attribute("value"): each for each in scatter.all()}
    assert named["samples_per_second"].text_content() == "samples per second"
    assert named["epoch_seconds"].text_content() == "seconds per epoch"
    assert named["epoch_seconds"].get_attribute("title") == "epoch_seconds" and named["lr"].text_content() == "lr"
    assert choices["Over"] == ["epoch", "seconds since the run's start", "samples"]
    assert choices["Group by"] == ["all seeds together", "each run", "lr", "batch_size", "num_workers", "device"]
    assert len(legend(page)) == 12
    curves.get_by_label("Metric", exact=True).select_option("samples_per_second")
    curves.get_by_label("Group by").select_option("lr")
    assert sorted(legend(page)) == ["lr=0.001", "lr=0.01", "lr=0.1"]
    assert curves.locator(".chart svg path[fill-opacity], .chart svg path[opacity='0.2']").count() >= 3  # the ranges
    curves.get_by_label("Over").select_option("seconds")
    expect(curves.locator(".chart svg")).to_contain_text("seconds since the run's start")
    ticks = curves.locator(".chart svg text").all_text_contents()
    curves.get_by_label("Log x").check()
    curves.get_by_label("Log y").check()
    assert curves.locator(".chart svg text").all_text_contents() != ticks
    assert address(page) == (
        "#curves.metric=samples_per_second&curves.group=setting:lr&curves.x=seconds&curves.logx=1&curves.logy=1"
    )
    first = curves.locator(".legend button").first
    lines = curves.locator(".chart svg path").count()
    first.focus()
    page.keyboard.press("Enter")
    expect(first).to_have_attribute("aria-pressed", "false")
    expect(first).to_be_focused()
    assert curves.locator(".chart svg path").count() < lines
    page.keyboard.press("Enter")
    expect(first).to_have_attribute("aria-pressed", "true")
    assert curves.locator(".chart svg path").count() == lines
    assert_quiet(visited, report)


def test_panels_fill_the_window_and_smoothing_leaves_last_values(report: SweepPaths, visit: OpenPage) -> None:
    visited = visit(report.report.as_uri())
    page = visited.page
    curves = figure(page, "curves")
    places = "figures.get('curves').chart.getOption().grid.map(({ left, top }) => [left < 100, top < 100])"
    assert page.evaluate(places) == [[True, True], [False, True], [False, True], [True, False], [False, False]]
    titles = "figures.get('curves').chart.getOption().yAxis.map(({ name }) => name)"
    assert page.evaluate(titles)[:2] == [f"{name}: validation, training (dashed)" for name in ("accuracy", "loss")]
    assert curves.locator(".chart svg path[stroke-dasharray]").count() >= 24  # training beside validation
    values = "figures.get('curves').drawn.csv().filter(([, name]) => name === 'val_loss').map((row) => row[4])"
    before = page.evaluate(values)
    assert len(set(before)) > 2
    ranked = legend(page)
    curves.get_by_label("Smoothing").select_option("0.8")
    after = page.evaluate(values)
    assert len(after) == len(before) and after != before and after[0] == before[0]
    assert min(before) <= min(after) and max(after) <= max(before)
    assert legend(page) == ranked
    expect(curves.locator(".state")).to_contain_text("Lines are smoothed; the last values are not.")
    assert address(page) == "#curves.smooth=0.8"
    curves.get_by_label("Metric", exact=True).select_option("val_loss")
    assert len(page.evaluate(titles)) == 1
    again = visit(f"{report.report.as_uri()}#curves.metric=loss").page  # an address of before: its panel
    figure(again, "curves")
    assert again.evaluate(titles) == ["loss: validation, training (dashed)"]
    assert_quiet(visited, report)


def test_dots_have_the_colours_of_what_matters_most(visit: OpenPage, tmp_path: Path) -> None:
    rates = [0.1 / each for each in range(1, 16)]
    paths = write_stored_sweep(tmp_path / "rates", num_runs=240, num_epochs=2, lr=rates)
    write_tables(paths)
    page = visit(paths.report.as_uri()).page
    scatter = figure(page, "scatter")
    scatter.get_by_label("y", exact=True).select_option("samples_per_second")
    scatter.get_by_label("x", exact=True).select_option("epoch_seconds")
    assert scatter.get_by_label("Colour").input_value() in ("device", "batch_size")
    scatter.get_by_label("y", exact=True).select_option("lr")
    assert scatter.get_by_label("Colour").input_value() == "lr"
    assert len(legend(page, "scatter")) == 7  # ranges of many values
    assert legend(page, "scatter")[-1].endswith(" to 0.1")


def test_pointing_at_a_curve_names_its_run(report: SweepPaths, visit: OpenPage) -> None:
    page = visit(report.report.as_uri()).page
    curves = figure(page, "curves")
    curves.get_by_label("Metric", exact=True).select_option("val_loss")
    curves.get_by_label("Group by").select_option("run")
    best = legend(page)[0]
    assert re.fullmatch(r"lr=[\d.]+, batch_size=\d+, num_workers=0, device=\w+, seed=\d", best), "settings alone"
    line = curves.locator('.chart svg path[stroke-width="2.6"]').first
    middle = line.evaluate(
        "path => { const at = path.getPointAtLength(path.getTotalLength() / 2), m = path.getScreenCTM();"
        " return [m.a * at.x + m.c * at.y + m.e, m.b * at.x + m.d * at.y + m.f]; }"
    )
    page.mouse.move(middle[0] + 3, middle[1] + 3)
    page.mouse.move(*middle)
    expect(curves.locator(".chart")).to_contain_text(best)
    expect(curves.locator(".chart")).to_contain_text(re.compile("validation loss: .* at epoch"))
    page.mouse.click(*middle)
    expect(page.locator(".panel h2")).to_have_text(
        re.compile(f"^{re.sub(', (num_workers|device)=[^,]*', '', best).replace(', ', ',')}-")
    )


def test_a_filter_a_limit_and_a_brush_select_the_same_runs_everywhere(report: SweepPaths, visit: OpenPage) -> None:
    visited = visit(report.report.as_uri())
    page = visited.page
    assert count(page) == f"{NUM_RUNS} of {NUM_RUNS} runs selected"
    page.locator("#results").get_by_role("searchbox").fill("device=cpu")
    assert count(page) == f"{NUM_RUNS // 2} of {NUM_RUNS} runs selected"
    assert page.get_by_label("Filter runs").input_value() == "device=cpu"
    figure(page, "curves").get_by_label("Group by").select_option("setting:device")
    assert legend(page) == ["device=cpu"]
    pairs = rows(page, "comparison").count()
    page.get_by_label("Filter runs").fill("device=cpu lr=0.1")
    assert rows(page).count() == NUM_CELLS // 6
    assert rows(page, "comparison").count() == pairs // 3

    page.get_by_label("Filter runs").fill("")
    page.get_by_label("Limit", exact=True).select_option("batch_size")
    page.get_by_label("from", exact=True).fill("1000")
    page.get_by_label("to", exact=True).fill("10000")
    page.keyboard.press("Enter")
    assert count(page) == f"{NUM_RUNS // 2} of {NUM_RUNS} runs selected"
    assert page.locator(".chips li").all_text_contents() == ["batch_size: 1,000 to 10,000 \u00d7"]
    assert {text.split()[0] for text in rows(page).locator("td:nth-child(2)").all_text_contents()} == {"1000", "10000"}
    page.get_by_role("button", name="Remove the limit batch_size: 1,000 to 10,000").click()

    scatter = figure(page, "scatter")
    scatter.get_by_label("x", exact=True).select_option("lr")
    scatter.get_by_label("y", exact=True).select_option("epoch_seconds")
    scatter.evaluate("figure => figure.scrollIntoView()")
    box = scatter.locator(".chart").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 150, steps=4)
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + box["height"] - 45, steps=4)
    page.mouse.up()
    expect(page.locator(".chips li")).to_have_count(2)
    assert count(page) == f"{NUM_RUNS // 3} of {NUM_RUNS} runs selected"  # lr=0.1
    page.get_by_role("button", name="Select all runs").click()
    assert count(page) == f"{NUM_RUNS} of {NUM_RUNS} runs selected"

    parallel = figure(page, "parallel")
    parallel.evaluate("figure => figure.scrollIntoView()")
    assert not [text for text in parallel.locator(".chart svg text").all_text_contents() if "..." in text]  # names
    axis = parallel.locator(".chart svg text", has_text=re.compile("^device$")).bounding_box()
    box = parallel.locator(".chart").bounding_box()
    assert axis is not None and box is not None
    x = axis["x"] + axis["width"] / 2
    page.mouse.move(x, box["y"] + 36)
    page.mouse.down()
    page.mouse.move(x, box["y"] + 80, steps=4)
    page.mouse.move(x, box["y"] + box["height"] / 2 - 20, steps=4)
    page.mouse.up()
    expect(page.locator(".chips li")).to_have_text([re.compile(r"^device: (cpu|cuda) \u00d7$")])
    assert count(page) == f"{NUM_RUNS // 2} of {NUM_RUNS} runs selected"
    assert_quiet(visited, report)


def test_many_dots_are_one_path_that_knows_its_runs(visit: OpenPage, tmp_path: Path) -> None:
    paths = write_stored_sweep(tmp_path / "many", num_runs=320, num_epochs=2, lr=[0.1 / each for each in range(1, 21)])
    write_tables(paths)
    page = visit(paths.report.as_uri()).page
    figure(page, "curves").evaluate("figure => figure.scrollIntoView({ behavior: 'instant' })")
    expect(figure(page, "curves").locator(".chart")).to_contain_text("epoch")
    axis = 'figures.get("curves").chart.getModel().getComponent("xAxis").axis.scale.getTicks()'
    assert [tick["value"] for tick in page.evaluate(axis)] == [1, 2], "an epoch is a whole number"
    scatter = figure(page, "scatter")
    scatter.get_by_label("Colour").select_option("none")
    assert scatter.locator(".chart svg path").count() < 50
    scatter.evaluate("figure => figure.scrollIntoView({ behavior: 'instant' })")
    box = scatter.locator(".chart").bounding_box()
    assert box is not None
    (name, label), (x, y) = page.evaluate(
        """() => {
          const { chart, drawn: { x, y } } = figures.get("scatter"), value = (name) => data.columns[name].values[7];
          return [[data.runs[7], runLabel(7)], chart.convertToPixel({ gridIndex: 0 }, [value(x), value(y)])];
        }"""
    )
    page.mouse.move(box["x"] + x + 2, box["y"] + y)
    page.mouse.move(box["x"] + x, box["y"] + y)
    expect(scatter.locator(".chart")).to_contain_text(label)
    page.mouse.click(box["x"] + x, box["y"] + y)
    expect(page.locator(".panel h2")).to_have_text(name)


def test_a_run_opens_its_details_and_the_address_holds_the_view(report: SweepPaths, visit: OpenPage) -> None:
    page = visit(report.report.as_uri()).page
    name = sorted(path.name for path in report.runs.iterdir())[0]
    chooser = page.get_by_label("Open a run")
    chooser.focus()
    chooser.select_option(label=name)
    panel = page.locator(".panel")
    expect(panel.locator("h2")).to_have_text(name)
    expect(panel.locator("h2")).to_be_focused()
    expect(panel).to_contain_text("<b>epoch 12 done</b>")
    expect(panel.get_by_label("command")).to_have_text("python -m runmanager -m")
    assert "dataset.holdout" in (panel.text_content() or "")
    marked = page.locator("#results tr.marked")
    expect(marked).to_have_count(1)
    page.locator("#results th", has_text="lr").first.get_by_role("button").click()
    page.locator("#results").get_by_role("searchbox").fill("cpu or cuda")
    order = rows(page).locator("td:first-child").all_text_contents()
    again = visit(page.url).page
    expect(again.locator(".panel h2")).to_have_text(name)
    assert again.locator("#results").get_by_role("searchbox").input_value() == "cpu or cuda"
    assert rows(again).locator("td:first-child").all_text_contents() == order
    page.locator(".panel h2").focus()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(chooser).to_be_focused()
    expect(marked).to_have_count(0)
    wrong = visit(
        f"{report.report.as_uri()}#limits=%5B%5B%22nothing%22%2C1%5D%2C7%5D&runs=x&curves.metric=no&scatter.x=no"
    )
    assert count(wrong.page) == f"{NUM_RUNS} of {NUM_RUNS} runs selected"
    assert_quiet(wrong, report)


def test_a_figure_is_copied_and_saved_as_it_stands(report: SweepPaths, visit: OpenPage, tmp_path: Path) -> None:
    visited = visit(report.report.as_uri())
    page = visited.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    curves = figure(page, "curves")
    curves.get_by_label("Group by").select_option("setting:lr")
    curves.locator(".legend button", has_text="lr=0.01").first.click()
    curves.locator("summary", has_text="Copy or save").click()
    curves.get_by_role("button", name="Copy SVG").click()
    expect(curves.get_by_role("status")).to_have_text("Copied.")
    svg = page.evaluate("navigator.clipboard.readText()")
    assert page.evaluate(
        "text => new DOMParser().parseFromString(text, 'image/svg+xml').querySelector('parsererror') === null", svg
    )
    assert "lr=0.001" in svg and ">lr=0.01<" not in svg
    curves.get_by_role("button", name="Copy PNG").click()
    expect(curves.get_by_role("status")).to_have_text("Copied.")
    assert page.evaluate("async () => (await navigator.clipboard.read())[0].types") == ["image/png"]
    curves.get_by_role("button", name="Copy CSV").click()
    expect(curves.get_by_role("status")).to_have_text("Copied.")
    header, *lines = csv.reader(page.evaluate("navigator.clipboard.readText()").splitlines())
    assert header == ["group", "metric", "over", "at", "value", "lowest", "highest"]
    assert {line[0] for line in lines} == {"lr=0.1", "lr=0.001"}
    assert {line[1] for line in lines} >= {"val_accuracy", "accuracy", "val_loss", "loss", "samples_per_second"}
    assert all(float(low) <= float(value) + 1e-9 <= float(high) + 2e-9 for *_, value, low, high in lines)
    for name in INTERACTIVE:
        each = figure(page, name)
        if name != "curves":
            each.locator("summary", has_text="Copy or save").click()
        with page.expect_download() as download:
            each.get_by_role("button", name="Save PNG").click()
        assert download.value.suggested_filename == f"digits-{name}.png"
        download.value.save_as(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        with page.expect_download() as download:
            each.get_by_role("button", name="Save CSV").click()
        assert download.value.suggested_filename == f"digits-{name}.csv"
        download.value.save_as(tmp_path / f"{name}.csv")
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            fields = list(csv.reader(file))
        assert len(fields) > 2 and {len(row) for row in fields} == {len(fields[0])}
    assert_quiet(visited, report)


def test_new_data_are_shown_with_the_view_kept(report: SweepPaths, visit: OpenPage) -> None:
    page = visit(report.report.as_uri()).page
    figure(page, "curves").get_by_label("Metric", exact=True).select_option("val_loss")
    page.locator("#results").get_by_role("searchbox").fill("device=cpu")
    data: dict[str, Any] = json.loads(page.locator("#data").text_content() or "")
    data["panels"][1]["title"] = "another label"
    page.evaluate("data => report.update(data)", data)
    expect(figure(page, "curves").locator(".chart svg")).to_contain_text("another label")
    assert count(page) == f"{NUM_RUNS // 2} of {NUM_RUNS} runs selected"
    found = re.search("<main[^>]*>(.*?)</main>", report.report.read_text(), re.DOTALL)
    assert found is not None
    newer = found[1].replace('class="answer">', 'class="answer">Newer: ')
    field = page.locator("#results").get_by_role("searchbox")
    page.locator("#results th", has_text="lr").first.get_by_role("button").click()
    order = rows(page).locator("td:first-child").all_text_contents()
    field.focus()
    page.evaluate("([data, main]) => report.update(data, main)", [data, newer])
    expect(page.locator(".answer")).to_contain_text("Newer: ")
    expect(field).to_be_focused()
    assert rows(page).locator("td:first-child").all_text_contents() == order
    assert count(page) == f"{NUM_RUNS // 2} of {NUM_RUNS} runs selected"
    assert page.locator("figure .interactive").count() == len(INTERACTIVE)  # the figures stay
    page.evaluate(
        'data => report.update(data, \'<p>Another answer</p><section id="figures"><div class="figures">'
        '<figure data-figure="curves" data-title="Curves"></figure></div></section>\')',
        data,
    )
    expect(page.get_by_text("Another answer")).to_be_visible()
    expect(figure(page, "curves").get_by_label("Metric", exact=True)).to_have_value("val_loss")


def test_without_javascript_and_on_paper_the_figures_of_the_files_remain(
    report: SweepPaths, chromium: Browser, visit: OpenPage
) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.report.as_uri())
    static = [name for name in INTERACTIVE if name != "scatter"]
    for name in static:
        assert page.locator(f'figure[data-figure="{name}"] .drawing svg').bounding_box()["width"] > 200  # type: ignore[index]
    assert not page.locator('figure[data-figure="scatter"]').is_visible()
    assert page.locator("button:visible, select:visible, summary:visible").count() == 0
    context.close()
    page = visit(report.report.as_uri(), width=1032, scheme="dark").page
    for name in INTERACTIVE:
        figure(page, name)
    rows(page).first.locator("td").nth(1).click()
    page.emulate_media(media="print")
    for name in static:
        assert page.locator(f'figure[data-figure="{name}"] .drawing svg').bounding_box()["width"] > 200  # type: ignore[index]
    assert page.locator(".interactive:visible, .panel:visible, .selection:visible").count() == 0
    assert not page.locator('figure[data-figure="scatter"]').is_visible()
