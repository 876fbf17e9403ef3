"""Opening the report of a thousand runs in a browser: its size, the first paint, and each interaction."""

import shutil
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.rows import Budget, Row, format_megabytes, format_seconds, measurement_row
from benchmarks.stored_sweep import write_stored_sweep
from runmanager.results.result_files import write_tables

__all__ = ["page_rows"]

_NUM_RUNS = 1000
_NUM_EPOCHS = 100
_SMALL = 16
_RATES = tuple(round(0.5 * 0.9**step, 6) for step in range(63))
_LOG = "".join(f"epoch {number:3}: loss 0.1234, validation accuracy 0.9876\n" for number in range(_NUM_EPOCHS))
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_AT_CURVES = {
    "choosing another metric": "choose('curves.metric', 'val_loss')",
    "choosing time as the axis": "choose('curves.x', 'seconds')",
    "grouping by a setting": "choose('curves.group', 'setting:batch_size')",
    "a curve of each run": "choose('curves.group', 'run')",
    "a log axis": "document.querySelector('[name=\"curves.logy\"]').click()",
    "switching a curve off": "document.querySelector('.legend button').click()",
    "filtering by words": "type('device=cpu lr<0.1')",
    "filtering by nothing": "type('')",
    "limiting a column": "limit('batch_size', 1000, 10000)",
    "opening a run": "document.querySelector('#results tbody tr:not([hidden]) td').click()",
    "selecting all runs": "button('Select all runs').click()",
    "sorting the results": "document.querySelector('#results th button').click()",
}
_AT_SCATTER = {
    "choosing a column of the scatter": "choose('scatter.x', 'run_seconds')",
    "filtering beside scatter and parallel coordinates": "type('device=cpu lr<0.1')",
    "filtering by nothing beside them": "type('')",
    "opening a run beside them": "document.querySelector('#results tbody tr:not([hidden]) td').click()",
}
_INTERACTIONS = {"curves": _AT_CURVES, "scatter": _AT_SCATTER}
"""By the figure at the top of the window."""
_PAINT = "first paint"

_HELPERS = """
function choose(name, value) {
  const input = document.querySelector(`[name="${name}"]`);
  input.value = value;
  input.dispatchEvent(new Event("change"));
}
function type(words) {
  const field = document.querySelector('#results [type="search"]');
  field.value = words;
  field.dispatchEvent(new Event("input"));
}
function button(text) {
  return [...document.querySelectorAll("button")].find((each) => each.textContent === text);
}
function limit(column, low, high) {
  const field = (label) => document.querySelector(`.selection [aria-label="${label}"]`);
  field("Limit").value = column;
  field("from").value = low;
  field("to").value = high;
  button("Apply limit").click();
}
function painted() {
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}
async function drawn() {
  do await painted();
  while ([...figures.values()].some((figure) => figure.isVisible && figure.isDirty));
}
async function scrollToFigure(name) {
  const { element } = figures.get(name);
  do { // figures above it become taller when they are drawn
    element.scrollIntoView({ behavior: "instant" });
    await drawn();
  } while (Math.abs(element.getBoundingClientRect().top) > 30);
}
async function timed(act) {
  await painted();
  const start = performance.now();
  act();
  await drawn();
  return (performance.now() - start) / 1000;
}
"""


def page_rows(num_rounds: int) -> list[Row]:
    """Return the sizes of both pages, the seconds to the first paint, and those of the slowest interactions.

    Each round opens the page in a new browser, with the learning curves at the top of the window, then the scatter and
    parallel coordinates. An interaction is an event of a control; it ends in the second frame after all figures in the
    window are drawn again, when the first one is painted. Without Chromium only the sizes are measured.
    """
    with tempfile.TemporaryDirectory() as name:
        large = write_stored_sweep(Path(name, "large"), num_runs=_NUM_RUNS, num_epochs=_NUM_EPOCHS, lr=_RATES)
        small = write_stored_sweep(Path(name, "small"), num_runs=_SMALL, num_epochs=_NUM_EPOCHS)
        for sweep in (large, small):
            for run in sweep.runs.iterdir():
                (run / "run.log").write_text(_LOG)
            write_tables(sweep)
        rows = [
            _size_row(f"{_NUM_RUNS:,} runs of {_NUM_EPOCHS} epochs", large.report, 5e6),
            _size_row(f"{_SMALL} runs of {_NUM_EPOCHS} epochs", small.report, 1.5e6),
        ]
        browser = next((path for each in _NAMES if (path := shutil.which(each))), None)
        if browser is None:
            return rows
        rounds = [_open(browser, large.report) for _ in range(num_rounds)]
    seconds = {each: [found[each] for found in rounds] for each in rounds[0]}
    rows.append(_time_row(f"page: {_PAINT}", seconds[_PAINT], 1.5))
    for figure, acts in _INTERACTIONS.items():
        slowest = max(acts, key=lambda each: median(seconds[each]))
        what = f"page: the slowest of {len(acts)} changes at the {figure}, {slowest}"
        rows.append(_time_row(what, seconds[slowest], 0.15))
    return rows


def _time_row(what: str, values: list[float], limit: float) -> Row:
    return measurement_row(what, values, budget=Budget(limit, format=format_seconds))


def _size_row(what: str, page: Path, limit: float) -> Row:
    return measurement_row(f"{what}: size", [page.stat().st_size], budget=Budget(limit, format=format_megabytes))


def _open(browser: str, path: Path) -> dict[str, float]:
    """Seconds of each measured part."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser)
        page = opened.new_page(viewport={"width": 1400, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
        found = {_PAINT: page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000}
        page.wait_for_selector("figure[data-figure=curves]")
        for figure, interactions in _INTERACTIONS.items():
            page.evaluate(f"async () => {{ {_HELPERS} await scrollToFigure('{figure}'); }}")
            for name, act in interactions.items():
                found[name] = page.evaluate(f"async () => {{ {_HELPERS} return timed(() => {{ {act} }}); }}")
        opened.close()
    return found
