"""A page that a test has open, and what became of it."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from playwright.sync_api import ConsoleMessage, Error, Page, Request


@dataclass
class Visit:
    """A page that is open, with what it complained of and what it asked for since it was opened."""

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


class Visiting(Protocol):
    """Opens an address in a window of its own."""

    def __call__(
        self, url: str, *, width: int = 1400, height: int = 900, scheme: Literal["light", "dark"] = "light"
    ) -> Visit: ...
