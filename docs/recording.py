"""The recording of a report in docs/images/report.webp: ten seconds of exploring a small sweep of real runs."""

import contextlib
import io
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import Browser, Locator, Page

SWEEP = (
    *("sweep", "lr=0.003,0.01,0.03,0.1", "batch_size=50,100,200", "seed=0,1,2", "model=mlp", "optimizer=sgd"),
    *("device=cpu", "epochs=12", "dataset.size=1500", "name=digits"),
)
WIDTH = 1200
HEIGHT = 740
QUALITY = 55
FRAME = 60  # milliseconds of a frame in which something moves
POINTER = ((0, 0), (0, 17), (4, 13), (7, 19), (10, 18), (7, 12), (12, 12))
_COMMAND = "import sys; from runmanager.cli.main import run_command; sys.exit(run_command(sys.argv[1:]))"
_ON_LINE = """
path => {
  const at = path.getPointAtLength(path.getTotalLength() * 0.4), m = path.getScreenCTM();
  return [m.a * at.x + m.c * at.y + m.e, m.b * at.x + m.d * at.y + m.f];
}
"""


class _Stage:
    """A page, the mouse pointer on it, and the frames so far with their milliseconds.

    Screenshots lack the pointer, so each frame gets a drawn one.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[tuple[Image.Image, int]] = []
        self._pointer = (0.75 * WIDTH, 0.7 * HEIGHT)

    def hold(self, milliseconds: int) -> None:
        """Show the page as it is."""
        image = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        x, y = self._pointer
        shape = [(x + dx, y + dy) for dx, dy in POINTER]
        ImageDraw.Draw(image).polygon(shape, fill="black", outline="white")
        self.frames.append((image, milliseconds))

    def scroll_to(self, place: Locator, *, steps: int = 8) -> None:
        """Scroll until `place` is at the top of the window."""
        distance = place.evaluate("place => place.getBoundingClientRect().top - 12")
        for _ in range(steps):
            self.page.evaluate("by => scrollBy({ top: by, behavior: 'instant' })", distance / steps)
            self.hold(FRAME)

    def move(self, x: float, y: float, *, steps: int = 6) -> None:
        """Move the pointer in a straight line."""
        start_x, start_y = self._pointer
        for step in range(1, steps + 1):
            self._pointer = (start_x + (x - start_x) * step / steps, start_y + (y - start_y) * step / steps)
            self.page.mouse.move(*self._pointer)
            self.hold(FRAME)

    def move_to(self, place: Locator, *, steps: int = 6) -> None:
        """Move the pointer to the middle of `place`."""
        box = place.bounding_box()
        assert box is not None
        self.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=steps)

    def click(self, place: Locator) -> None:
        """Move the pointer to `place` and press its button."""
        self.move_to(place)
        self.page.mouse.down()
        self.page.mouse.up()


def write_recording(browser: Browser, images: Path) -> None:
    """Run a sweep and write report.webp: the answer, a curve, groups, a brush over an axis, and a run's details."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", _COMMAND, *SWEEP], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        report = Path(folder, "outputs", "digits", "report.html")
        with contextlib.closing(browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})) as context:
            stage = _Stage(context.new_page())
            stage.page.goto(report.as_uri())
            _explore(stage)
    first, *others = [image for image, _ in stage.frames]
    durations = [milliseconds for _, milliseconds in stage.frames]
    path = images / "report.webp"
    first.save(path, save_all=True, append_images=others, duration=durations, loop=0, quality=QUALITY, method=6)
    print(f"{path.name}: {sum(durations) / 1000:.1f} s, {len(durations)} frames")


def _explore(stage: _Stage) -> None:
    page = stage.page
    curves, parallel = (page.locator(f'figure[data-figure="{name}"]') for name in ("curves", "parallel"))
    stage.hold(1300)
    stage.scroll_to(page.locator(".selection"))
    for figure in (curves, parallel):
        figure.locator(".chart svg").wait_for()
    best = curves.locator('.chart svg path[stroke-width="2.6"]').first
    stage.move(*best.evaluate(_ON_LINE))
    stage.hold(1000)
    group = curves.get_by_label("Group by")
    stage.move_to(group)
    group.select_option("setting:lr")
    stage.hold(1200)
    _brush(stage, parallel)
    stage.hold(1300)
    stage.scroll_to(page.locator("#results"))
    row = page.locator("#results tbody tr:not([hidden])").first
    stage.click(row.locator("td").first)
    stage.hold(600)
    stage.click(page.locator(".panel li button").first)
    stage.hold(1800)


def _brush(stage: _Stage, parallel: Locator) -> None:
    """Select the upper part of the last axis, which shows the quality."""
    lines = parallel.locator(".chart").bounding_box()
    last = parallel.locator(".chart svg text").filter(has_text="validation accuracy").bounding_box()
    assert lines is not None and last is not None
    x, top = last["x"] + last["width"] / 2, lines["y"] + 36
    stage.move(x, top)
    stage.page.mouse.down()
    stage.move(x, top + 0.3 * lines["height"])
    stage.page.mouse.up()
    stage.page.locator(".chips li").wait_for()
