"""Open pages, with the errors and requests that the browser reports."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from playwright.sync_api import ConsoleMessage, Error, Page, Request


@dataclass
class Visit:
    """An open page, its console errors and warnings, and the URLs that it requested."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def note_error(self, error: Error) -> None:
        self.errors.append(str(error))

    def note_request(self, request: Request) -> None:
        self.requests.append(request.url)


class OpenPage(Protocol):
    """A function that opens a URL in a new window."""

    def __call__(
        self, url: str, *, width: int = 1400, height: int = 900, scheme: Literal["light", "dark"] = "light"
    ) -> Visit: ...
