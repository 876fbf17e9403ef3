"""Images of TensorBoard in docs/images/: the tabs of `runmanager tensorboard` on a small sweep of real runs."""

import contextlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

GRID = ("lr=0.003,0.03", "batch_size=100,1000", "epochs=6", "dataset.size=3000", "name=digits")
RUNS = 4
TABS = {"custom-scalars": "custom_scalars", "hparams": "hparams", "images": "images&tagFilter=across_runs"}
WIDTH = 1400
HEIGHT = 700
LIMIT_MILLISECONDS = 60_000

expect.set_options(timeout=LIMIT_MILLISECONDS)


def write_tensorboard_pictures(browser: Browser, images: Path) -> None:
    """Run a sweep and write tensorboard-custom-scalars.png, -hparams.png, -parallel.png and -images.png."""
    program = [sys.executable, "-c", "from runmanager.cli.main import main; main()"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*program, "sweep", *GRID, "device=cpu"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        serve = [*program, "tensorboard", "digits", "--port", "0"]
        with subprocess.Popen(serve, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                found = re.search(r"http://\S+/", server.stdout.readline())
                assert found is not None
                for name, tab in TABS.items():
                    _write(browser, f"{found[0]}#{tab}", images, name)
            finally:
                server.terminate()


def _write(browser: Browser, address: str, images: Path, name: str) -> None:
    viewport = {"width": WIDTH, "height": HEIGHT}
    with contextlib.closing(browser.new_context(viewport=viewport, reduced_motion="reduce")) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(address)
        _await_runs(page, name)
        page.screenshot(path=images / f"tensorboard-{name}.png")
        if name == "hparams":
            page.get_by_text("Parallel Coordinates View").click()
            expect(page.locator("tf-hparams-parallel-coords-plot svg g.foreground path")).to_have_count(RUNS)
            page.screenshot(path=images / "tensorboard-parallel.png")


def _await_runs(page: Page, name: str) -> None:
    """Wait until the tab is complete."""
    if name == "hparams":
        expect(page.locator("tf-hparams-table-view").get_by_text(re.compile("^lr=0"))).to_have_count(RUNS)
    elif name == "images":
        expect(page.locator("tf-image-loader img").nth(2)).to_be_visible()
    else:
        expect(page.get_by_text(f"Matches ({2 * RUNS})")).to_have_count(2)
    page.wait_for_load_state("networkidle")
