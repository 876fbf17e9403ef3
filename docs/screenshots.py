"""Create the images of docs/images/: `python docs/screenshots.py [NAME...]`, by default all of them.

Needs Chromium and playwright, like tests/browser. Each function in PICTURES writes the images of its name.
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
from recording import write_recording
from tensorboard_pictures import write_tensorboard_pictures
from terminal_pictures import comparison, live_table

from runmanager.records.files.paths import SweepPaths
from runmanager.results.result_files import write_tables

DOCS = Path(__file__).resolve().parent
IMAGES = DOCS / "images"
WIDTH = 1400
HEIGHT = 955
MAX_BYTES = 200_000  # per image, since readers of the page download it
MAX_RECORDING_BYTES = 2_000_000

Picture = Callable[[Browser, SweepPaths], None]


def report(browser: Browser, sweep: SweepPaths) -> None:
    """Capture the top of the example's report, light and dark."""
    write_tables(sweep)
    for scheme, name in (("light", "report.png"), ("dark", "report-dark.png")):
        options: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": WIDTH, "height": HEIGHT}}
        with contextlib.closing(browser.new_context(**options)) as context:
            page = context.new_page()
            page.goto(sweep.report.resolve().as_uri())
            page.screenshot(path=IMAGES / name)


def recording(browser: Browser, sweep: SweepPaths) -> None:
    """Record the report of a separate sweep, since the example's runs are made up."""
    write_recording(browser, IMAGES)


def tensorboard(browser: Browser, sweep: SweepPaths) -> None:
    """Capture TensorBoard's tabs, from a separate sweep, since the example has no event files."""
    write_tensorboard_pictures(browser, IMAGES)


def terminal(browser: Browser, sweep: SweepPaths) -> None:
    """Capture the output of commands: of the example, and of a sweep run for this purpose."""
    for picture in (comparison, live_table):
        picture(Path.cwd())


PICTURES: dict[str, Picture] = {
    "report": report,
    "recording": recording,
    "tensorboard": tensorboard,
    "terminal": terminal,
}


def main(names: list[str]) -> None:
    """Create the named images, or all of them."""
    if unknown := [name for name in names if name not in PICTURES]:
        sys.exit(f"error: an image must be one of {', '.join(PICTURES)}, got {', '.join(unknown)}.")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("error: images need Chromium, which is not installed; on Debian and Ubuntu: apt install chromium")
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
        limit = MAX_RECORDING_BYTES if picture.suffix == ".webp" else MAX_BYTES
        print(f"{picture.relative_to(DOCS.parent)}: {size:,} bytes{', too large' if size > limit else ''}")


if __name__ == "__main__":
    main(sys.argv[1:])
