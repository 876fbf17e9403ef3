"""A page of the server: a page as this package writes it, with links, a place for the runs at work, and a script.

The page comes from `results/report/` and is the one that a file has. It must have a content policy in its head, an
`<h1>`, below which the runs at work stand, and a `<main>`, whose children are replaced when they change. A data block
for its scripts, if it has one, stands behind that.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote, urlencode

from runmanager.results.report.html_table import render_template

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
