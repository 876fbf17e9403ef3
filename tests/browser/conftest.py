"""A real headless Chromium for the tests that look at pages; where there is none they skip, and say so."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import psutil
import pytest
from playwright.sync_api import Browser, sync_playwright

from .visiting import Visit, Visiting

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LIMIT_MILLISECONDS = 60_000  # of every wait for the browser: it shares two cores with other tests
_LIMIT_SECONDS_OF_A_TEST = 300.0


@pytest.fixture(scope="module")
def driven() -> Iterator[tuple[Browser, list[psutil.Process]]]:
    """The browser of this machine, driven by Playwright, and its processes; each file of tests has its own."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(_NAMES)} is installed (Debian and Ubuntu: apt install chromium)")
    others = psutil.Process().children()
    playwright = sync_playwright().start()
    driver = [each for each in psutil.Process().children() if each not in others]
    with _made_to_end(driver, playwright.stop):
        browser = playwright.chromium.launch(executable_path=found)
        processes = driver[0].children(recursive=True)
        with _made_to_end(processes, browser.close):
            yield browser, processes


@pytest.fixture(scope="module")
def chromium(driven: tuple[Browser, list[psutil.Process]]) -> Browser:
    """The browser."""
    return driven[0]


@pytest.fixture(autouse=True)
def mortal_browser(driven: tuple[Browser, list[psutil.Process]]) -> Iterator[None]:
    """Kills it under a test that comes to no end: for what a page is to evaluate, Playwright waits without limit."""
    with _killed_late(driven[1], _LIMIT_SECONDS_OF_A_TEST):
        yield


@contextmanager
def _made_to_end(processes: list[psutil.Process], end: Callable[[], None]) -> Iterator[None]:
    """Afterwards calls `end`, and kills the processes where it has not ended them in time.

    Playwright waits without limit for the browser and for its driver. A browser now and then does not go, and the
    driver stays for as long as any process has its end of their pipe, as one that a test forked and forgot has.
    """
    try:
        yield
    finally:
        with _killed_late(processes, _LIMIT_MILLISECONDS / 1000):
            end()


@contextmanager
def _killed_late(processes: list[psutil.Process], seconds: float) -> Iterator[None]:
    late = threading.Timer(seconds, _kill, [processes])
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Visiting]:
    """Opens pages, each with nothing stored from another; closed when the test ends."""
    closing: list[Callable[[], None]] = []

    def opened(url: str, *, width: int = 1400, height: int = 900, scheme: Literal["light", "dark"] = "light") -> Visit:
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        closing.append(context.close)
        context.set_default_timeout(_LIMIT_MILLISECONDS)
        visit = Visit(context.new_page())
        visit.page.on("console", visit.note_console)
        visit.page.on("pageerror", visit.note_error)
        visit.page.on("request", visit.note_request)
        visit.page.goto(url)
        return visit

    yield opened
    for close in closing:
        close()
