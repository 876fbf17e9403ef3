"""A real headless Chromium for the tests that look at pages; where there is none they skip, and say so."""

import shutil
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, sync_playwright

from .visiting import Visit, Visiting

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LIMIT_MILLISECONDS = 60_000  # of every wait for the browser: it shares two cores with other tests


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser of this machine, driven by Playwright; one for all tests of a process."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(_NAMES)} is installed (Debian and Ubuntu: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found)
        yield browser
        browser.close()


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
