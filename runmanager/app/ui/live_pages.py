"""A page of the server: a page as this package writes it, with links, a place for the runs at work, and a script.

The page comes from `results/report/` and is the one that a file has. It must have a content policy in its head, an
`<h1>`, below which the runs at work stand, and a `<main>`, whose children are replaced when they change. A data block
for its scripts, if it has one, stands behind that. Pages take long to make: one thread draws them, for all readers,
and again when their sweep has changed.
"""

import base64
import contextlib
import ctypes
import datetime
import hashlib
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from urllib.parse import quote, urlencode

from runmanager.results.report.html_table import render_template
from runmanager.results.write_throttle import WriteThrottle
from runmanager.text import error_line

_POLICY = re.compile(r'(<meta http-equiv="Content-Security-Policy" content=")([^"]*)(">)')
_DATA = re.compile(r'<script type="application/json"[^>]*>.*?</script>\n?', re.DOTALL)


@dataclass(frozen=True)
class LivePage:
    """The parts of a page, and its content policy; the live part belongs between `heading` and `content`."""

    head: str
    heading: str
    content: str
    data: str
    scripts: str
    policy: str

    def with_live(self, live: str) -> str:
        """Return the whole page with this live part."""
        return f"{self.head}{self.heading}{live}{self.content}{self.data}{self.scripts}"

    def news(self, live: str) -> str:
        """Return what may differ from an earlier version of the page: neither styles nor scripts."""
        return f"<!DOCTYPE html>\n{self.heading}{live}{self.content}{self.data}"


def live_page(page: str, links: Sequence[tuple[str, str]]) -> LivePage:
    """Prepare a page; `links` are texts and addresses for its top."""
    found = _POLICY.search(page)
    assert found is not None, "the page must have a content policy"
    policy = _with_script(found[2])
    head, body, rest = page.partition("<body>")
    head = head.replace(found[0], f"{found[1]}{policy}{found[3]}").replace("</head>", f"{_style()}</head>")
    above, heading, below = rest.partition("</h1>\n")
    content, end, scripts = below.partition("</main>")
    assert body and heading and end, "the page must have a body, a heading and a main part"
    data = _DATA.search(scripts)
    return LivePage(
        head=f"{head}{body}\n{render_template('ui/links.html', links=links)}",
        heading=f"{above}{heading}",
        # The script comes before the page's own ones, which change the tables that it compares.
        content=f"{content}{end}\n",
        data=data[0] if data else "",
        scripts=f"<script>{_script()}</script>{_DATA.sub('', scripts, count=1)}",
        policy=policy,
    )


def address_of(sweep: str) -> str | None:
    """Return the address of a sweep's page; None for a name that is not UTF-8, which no address can have."""
    try:
        return f"/sweep/{quote(sweep)}"
    except UnicodeEncodeError:
        return None


def compare_address(candidate: str, baseline: str = "") -> str:
    """Return the address of a comparison, and without a baseline that of its choice."""
    sides = {"baseline": baseline, "candidate": candidate}
    return f"/compare?{urlencode({side: name for side, name in sides.items() if name}, errors='replace')}"


def _with_script(policy: str) -> str:
    """Allow the server's script, its requests to the server, and forms that lead to the server."""
    directives = {name: sources for name, _, sources in (each.strip().partition(" ") for each in policy.split(";"))}
    digest = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    directives["script-src"] += f" 'sha256-{digest}'"
    directives |= {"connect-src": "'self'", "form-action": "'self'"}
    return "; ".join(f"{name} {sources}" for name, sources in directives.items())


@cache
def _script() -> str:
    return render_template("ui/live.js")


@cache
def _style() -> str:
    return f"<style>\n{render_template('ui/live.css')}\n</style>\n"


_TEXT_SHARE = 0.2  # of the time goes into tables and sentences at most: runs may be training on this machine
_FIGURES_SHARE = 0.05
_AGAIN_SECONDS = 0.02


@dataclass(frozen=True)
class Drawing:
    """A page as drawn: of this `version` of the files, with figures of that one; `fault` is why it is not newer.

    The times are when the two were drawn.
    """

    page: LivePage | None = None
    version: int = -1
    drawn_at: datetime.datetime | None = None
    figures_version: int = -1
    figures_at: datetime.datetime | None = None
    fault: str = ""

    @property
    def name(self) -> str:
        """What tells this drawing from the page's others."""
        return f"{self.version}.{self.figures_version}"


class DrawnPage:
    """A page with its last drawing. `draw` makes it; with `has_figures` it is called with True to draw them again too.

    Tables and sentences are drawn first, as figures take many times as long.
    """

    def __init__(
        self,
        draw: Callable[[bool], tuple[int, LivePage]],
        *,
        has_figures: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._draw = draw
        self._has_figures = has_figures
        self._text_throttle = WriteThrottle(_TEXT_SHARE, clock=clock)
        self._figures_throttle = WriteThrottle(_FIGURES_SHARE, clock=clock)
        self._changed = threading.Condition()
        self._drawing = Drawing()
        self._wanted = -1
        self._is_last = False
        self._is_queued = False

    @property
    def drawing(self) -> Drawing:
        """The last drawing."""
        return self._drawing

    def enqueue(self, version: int, *, is_last: bool) -> bool:
        """Ask for this version of the page. Returns whether it is to be queued: it is due, and not in the queue.

        `is_last`: nothing is being made, so no other version is expected soon, and this one is due at once.
        """
        with self._changed:
            self._wanted, self._is_last = max(self._wanted, version), is_last
            if self._is_queued or not (self._text_is_due or self._figures_are_due):
                return False
            self._is_queued = True
            return True

    def wait(self, version: int, seconds: float) -> Drawing:
        """Return the last drawing, after waiting for this version if it is about to be drawn."""
        with self._changed:
            self._changed.wait_for(lambda: self._drawing.version >= version or not self._is_queued, seconds)
            return self._drawing

    def draw_next(self) -> None:
        """Draw what is due; called by one thread at a time."""
        with self._changed:
            with_figures = not self._text_is_due
        throttle = self._figures_throttle if with_figures else self._text_throttle
        with throttle.writing():
            drawing = self._drawn(with_figures)
        with self._changed:
            self._drawing = drawing
            self._is_queued = False
            self._changed.notify_all()

    @property
    def _text_is_due(self) -> bool:
        return self._drawing.version < self._wanted and (self._is_last or self._text_throttle.is_due)

    @property
    def _figures_are_due(self) -> bool:
        is_older = self._drawing.figures_version < self._drawing.version
        return self._has_figures and is_older and (self._is_last or self._figures_throttle.is_due)

    def _drawn(self, with_figures: bool) -> Drawing:
        earlier, wanted = self._drawing, self._wanted
        try:
            version, page = self._draw(with_figures)
        except Exception as error:  # of this page alone; the next version may succeed
            tried = replace(earlier, version=wanted, fault=error_line(error))
            return replace(tried, figures_version=wanted) if with_figures else tried
        now = datetime.datetime.now(datetime.UTC)
        if with_figures:
            return Drawing(page, version, now, version, now)
        return Drawing(page, version, now, earlier.figures_version, earlier.figures_at)


class Drawer:
    """The thread that draws pages, one after another: the settings of matplotlib are those of the whole process."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[DrawnPage, int, bool] | None] = queue.SimpleQueue()
        # No daemon: one that draws while Python ends would abort the process, and hide its exit status.
        self._thread = threading.Thread(target=self._work, name="drawer")
        self._start = threading.Lock()
        self._is_ending = False

    def end(self) -> None:
        """Draw nothing more; what is being drawn is given up."""
        with self._start:
            self._is_ending = True
            self._queue.put(None)
        if self._thread.is_alive():
            with _ignored_exits():
                while self._thread.is_alive():
                    self._interrupt()
                    self._thread.join(_AGAIN_SECONDS)

    def _interrupt(self) -> None:
        ended = ctypes.py_object(SystemExit)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident or 0), ended)

    def request(self, page: DrawnPage, version: int, *, is_last: bool) -> None:
        """Have the page drawn if it is older than `version` and due (see `DrawnPage.enqueue`)."""
        if page.enqueue(version, is_last=is_last):
            self._queue.put((page, version, is_last))
            with self._start:
                if self._thread.ident is None and not self._is_ending:
                    self._thread.start()

    def _work(self) -> None:
        with contextlib.suppress(SystemExit):  # from `end`
            while (wanted := self._queue.get()) is not None and not self._is_ending:
                page, version, is_last = wanted
                page.draw_next()
                self.request(page, version, is_last=is_last)  # figures follow, after the pages that wait


@contextmanager
def _ignored_exits() -> Iterator[None]:
    """Print nothing of a `SystemExit` that was raised in a callback of the garbage collector, where none can leave."""
    earlier = sys.unraisablehook

    def hook(found: "sys.UnraisableHookArgs") -> None:
        if not issubclass(found.exc_type, SystemExit):
            earlier(found)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = earlier
