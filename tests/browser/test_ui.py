"""`runmanager ui` in a real browser: a sweep is followed while it is made, and the pages are accessible."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from runmanager.records.storage.run_folder import RunFolder

from ..app.ui.served import LIMIT_SECONDS, Client, epoch, serving, write_live_sweep
from ..cli.conftest import process_environment, process_words
from .pages import OpenPage

READERS: list[tuple[int, Literal["light", "dark"]]] = [(400, "light"), (400, "dark"), (1400, "light"), (1400, "dark")]

expect.set_options(timeout=LIMIT_SECONDS * 1000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


@pytest.fixture
def going(root: Path) -> Iterator[RunFolder]:
    """The run that is being made in the sweep `first`; `second` is another sweep."""
    write_live_sweep(root / "second")[1].close()
    _, going = write_live_sweep(root / "first")
    yield going
    going.close()


@pytest.fixture
def client(root: Path, going: RunFolder) -> Iterator[Client]:
    with serving(root) as client:
        yield client


def test_a_sweep_is_followed_without_losing_the_view(
    client: Client, root: Path, going: RunFolder, visit: OpenPage
) -> None:
    base = f"http://127.0.0.1:{client.port}"
    opened = visit(f"{base}/?token={client.token}")
    page = opened.page
    expect(page).to_have_url(f"{base}/")  # without the token
    created = page.locator("#sweeps td", has_text=" ago").first.locator("time")
    assert re.fullmatch(r"[\d-]{10} [\d:]{8} UTC", created.get_attribute("title") or "")
    page.get_by_role("link", name="first").click()
    expect(page).to_have_url(f"{base}/sweep/first")
    expect(page.locator("#figures svg").first).to_be_visible()
    expect(page.locator("#live")).to_contain_text("1 finished, 1 running")
    heading = page.locator("#results th", has_text="lr").first
    heading.get_by_role("button").click()
    heading.get_by_role("button").focus()
    page.evaluate("document.querySelector('#results').dataset.before = ''")
    going.append(epoch(5))
    expect(page.locator("#running td", has_text="0.505")).to_be_visible()
    results = page.locator("#results:not([data-before])")
    expect(results.locator("td", has_text="0.505")).to_be_visible()  # replaced, in the order that was chosen
    assert results.locator("th[aria-sort=ascending]").text_content() == "lr"
    assert results.locator("tbody td:first-child").all_text_contents() == ["0.01", "0.1"]
    assert page.evaluate("document.activeElement.closest('th')?.textContent") == "lr"
    assert results.get_by_role("button", name="Copy as CSV").is_visible()
    page.get_by_role("link", name="All sweeps").click()
    write_live_sweep(root / "third")[1].close()
    expect(page.get_by_role("link", name="third")).to_be_visible()
    page.get_by_label("Baseline").select_option("second")
    page.get_by_label("Candidate").select_option("first")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("h1")).to_have_text("Comparison of first with second")
    expect(page.locator("#comparison table")).to_be_visible()
    assert (opened.errors, {url.startswith(base) for url in opened.requests}) == ([], {True})


def test_the_page_that_the_command_opens_leads_to_the_sweeps(
    root: Path, going: RunFolder, visit: OpenPage, mortal: Callable[..., Any]
) -> None:
    with mortal(
        subprocess.Popen(
            process_words("ui", str(root), "--port", "0", "--open"),
            env=process_environment(BROWSER="echo %s"),
            stdout=subprocess.PIPE,
            text=True,
        )
    ) as process:
        word = next(line for line in process.stdout if line.startswith("file://")).strip()
        page = visit(word).page
        expect(page.get_by_role("link", name="first")).to_be_visible()
        page.reload()
        page.get_by_role("link", name="first").click()
        expect(page.locator("h1")).to_have_text("first")
        process.terminate()


def test_the_figures_of_a_report_follow_and_keep_their_view(client: Client, going: RunFolder, visit: OpenPage) -> None:
    base = f"http://127.0.0.1:{client.port}"
    opened = visit(f"{base}/sweep/first?token={client.token}")
    page = opened.page
    chart = page.locator("figure[data-figure=curves] .chart")
    expect(page.locator("#figures .drawing svg").nth(1)).to_be_attached()  # the drawings that stand for them came last
    expect(chart.locator("svg")).to_be_attached()
    page.get_by_label("Metric").first.select_option("loss")
    chart.evaluate("each => { each.dataset.kept = ''; }")
    assert page.evaluate("JSON.stringify(data.curves).includes('0.505')") is False
    going.append(epoch(5))
    page.wait_for_function("() => JSON.stringify(data.curves).includes('0.505')")
    expect(page).to_have_url(f"{base}/sweep/first#curves.metric=loss")
    expect(page.locator("figure[data-figure=curves] .chart[data-kept]")).to_be_visible()
    assert opened.errors == []


def test_a_reader_is_told_that_the_server_has_ended(root: Path, going: RunFolder, visit: OpenPage) -> None:
    with serving(root) as client:
        page = visit(f"http://127.0.0.1:{client.port}/?token={client.token}").page
        expect(page.get_by_role("link", name="first")).to_be_visible()
    expect(page.locator("#live")).to_contain_text("The server does not answer")
    expect(page.get_by_role("link", name="first")).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), READERS)
def test_pages_are_accessible(client: Client, visit: OpenPage, width: int, scheme: Literal["light", "dark"]) -> None:
    base = f"http://127.0.0.1:{client.port}"
    page = visit(f"{base}/?token={client.token}", width=width, scheme=scheme).page
    for address in ("/", "/sweep/first", "/compare?baseline=second&candidate=first", "/nowhere"):
        page.goto(f"{base}{address}")
        expect(page.locator("main")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), address
        found = Axe().run(page).response["violations"]
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert serious == [], json.dumps(serious, indent=2)[:4000]
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
