"""A real headless Chromium for tests of pages; they are skipped if none is installed."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import psutil
import pytest
from playwright.sync_api import Browser, sync_playwright

from .pages import OpenPage, Visit

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TIMEOUT_MILLISECONDS = 60_000  # generous: the browser may share two cores with other tests
_TEST_TIMEOUT_SECONDS = 300.0


@pytest.fixture(scope="module")
def browser_and_processes() -> Iterator[tuple[Browser, list[psutil.Process]]]:
    """An installed browser controlled by Playwright, one per test module, and its processes."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(_NAMES)} is installed (Debian and Ubuntu: apt install chromium)")
    others = psutil.Process().children()
    playwright = sync_playwright().start()
    driver = [each for each in psutil.Process().children() if each not in others]
    with _stopped_in_time(driver, playwright.stop):
        browser = playwright.chromium.launch(executable_path=found)
        processes = driver[0].children(recursive=True)
        with _stopped_in_time(processes, browser.close):
            yield browser, processes


@pytest.fixture(scope="module")
def chromium(browser_and_processes: tuple[Browser, list[psutil.Process]]) -> Browser:
    """The browser."""
    return browser_and_processes[0]


@pytest.fixture(autouse=True)
def killed_browser_after_timeout(browser_and_processes: tuple[Browser, list[psutil.Process]]) -> Iterator[None]:
    """Kill the browser if a test hangs: Playwright waits without a timeout for scripts that it evaluates."""
    with _killed_after(_TEST_TIMEOUT_SECONDS, browser_and_processes[1]):
        yield


@contextmanager
def _stopped_in_time(processes: list[psutil.Process], stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the end, and kill the processes if it does not return in time.

    Playwright waits without a timeout for the browser and its driver. A browser sometimes does not exit, and the driver
    runs as long as any process holds an end of their pipe, such as a process that a test forked.
    """
    try:
        yield
    finally:
        with _killed_after(_TIMEOUT_MILLISECONDS / 1000, processes):
            stop()


@contextmanager
def _killed_after(seconds: float, processes: list[psutil.Process]) -> Iterator[None]:
    timer = threading.Timer(seconds, _kill, [processes])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[OpenPage]:
    """A function that opens a page in a new browser context; pages are closed at the end of the test."""
    to_close: list[Callable[[], None]] = []

    def opened(url: str, *, width: int = 1400, height: int = 900, scheme: Literal["light", "dark"] = "light") -> Visit:
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        to_close.append(context.close)
        context.set_default_timeout(_TIMEOUT_MILLISECONDS)
        visit = Visit(context.new_page())
        visit.page.on("console", visit.note_console)
        visit.page.on("pageerror", visit.note_error)
        visit.page.on("request", visit.note_request)
        visit.page.goto(url)
        return visit

    yield opened
    for close in to_close:
        close()
