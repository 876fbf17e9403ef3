"""Makes the pictures of docs/images/: `python docs/screenshots.py`, or only those it names.

Needs Chromium and playwright, as the tests in tests/browser do. Each function of PICTURES writes the files of its name.
"""

import contextlib
import runpy
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright
from tensorboard_pictures import write_tensorboard_pictures
from terminal_pictures import comparison, live_table

from runmanager.records.files.paths import SweepPaths
from runmanager.results.result_files import write_tables

DOCS = Path(__file__).resolve().parent
IMAGES = DOCS / "images"
WIDTH = 1400
HEIGHT = 955
MOST_BYTES = 200_000  # of a picture: it is downloaded with the page that shows it

Picture = Callable[[Browser, SweepPaths], None]


def report(browser: Browser, sweep: SweepPaths) -> None:
    """The top of the example's report, light and dark."""
    write_tables(sweep)
    for scheme, name in (("light", "report.png"), ("dark", "report-dark.png")):
        options: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": WIDTH, "height": HEIGHT}}
        with contextlib.closing(browser.new_context(**options)) as context:
            page = context.new_page()
            page.goto(sweep.report.resolve().as_uri())
            page.screenshot(path=IMAGES / name)


def tensorboard(browser: Browser, sweep: SweepPaths) -> None:
    """TensorBoard's tabs. The example has no event files, so it is on runs of its own."""
    write_tensorboard_pictures(browser, IMAGES)


def terminal(browser: Browser, sweep: SweepPaths) -> None:
    """What commands show: of the example, and of a sweep that is run for it."""
    for picture in (comparison, live_table):
        picture(Path.cwd())


PICTURES: dict[str, Picture] = {"report": report, "tensorboard": tensorboard, "terminal": terminal}


def main(names: list[str]) -> None:
    """Make the named pictures, all of them where none is named."""
    if unknown := [name for name in names if name not in PICTURES]:
        sys.exit(f"error: a picture must be one of {', '.join(PICTURES)}, got {', '.join(unknown)}.")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("error: pictures need Chromium, and none is installed; on Debian and Ubuntu: apt install chromium")
    IMAGES.mkdir(exist_ok=True)
    write_example = runpy.run_path(str(DOCS / "example_sweep.py"))["write_example"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), sync_playwright() as playwright:
        sweep = write_example()
        browser = playwright.chromium.launch(executable_path=chromium)
        for name in names or PICTURES:
            PICTURES[name](browser, sweep)
        browser.close()
    for picture in sorted(IMAGES.iterdir()):
        size = picture.stat().st_size
        print(f"{picture.relative_to(DOCS.parent)}: {size:,} bytes{', too large' if size > MOST_BYTES else ''}")


if __name__ == "__main__":
    main(sys.argv[1:])
