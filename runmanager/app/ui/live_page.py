"""A page of the server: a page as this package writes it, with links, a place for what is going on, and a script.

The page comes from `results/report/` and is the one that a file has. It must have a content policy in its head, one
`<h1>`, below which stands what is going on, and one `<main>`, whose children with ids are replaced when they change.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote

from runmanager.results.report.html_pages import read_template, render_template
from runmanager.results.report.html_table import HtmlTable

__all__ = ["LivePage", "address_of", "compare_address", "live_page", "live_part"]

_POLICY = re.compile(r'(<meta http-equiv="Content-Security-Policy" content=")([^"]*)(">)')


@dataclass(frozen=True)
class LivePage:
    """A page, cut where the live part belongs, and its content policy."""

    before: str
    after: str
    policy: str

    def with_live(self, live: str) -> str:
        """Return the page with this live part."""
        return f"{self.before}{live}{self.after}"


def live_page(page: str, links: Sequence[tuple[str, str]]) -> LivePage:
    """Prepare a page; `links` are texts and addresses for its top."""
    found = _POLICY.search(page)
    assert found is not None, "the page must have a content policy"
    policy = _with_script(found[2])
    head, body, rest = page.partition("<body>")
    head = head.replace(found[0], f"{found[1]}{policy}{found[3]}").replace("</head>", f"{_style()}</head>")
    above, heading, below = rest.partition("</h1>\n")
    content, end, scripts = below.rpartition("</main>")
    assert body and heading and end, "the page must have a body, a heading and a main part"
    header = render_template("ui/links.html", links=links)
    # Before the page's own scripts, which change the tables that this one compares.
    script = f"<script>{read_template('ui/live.js')}</script>"
    return LivePage(f"{head}{body}\n{header}{above}{heading}", f"{content}{end}\n{script}{scripts}", policy)


def live_part(status: str, *, version: str, drawn: str, table: HtmlTable | None = None) -> str:
    """Return what stands below a page's heading, and all that is sent while nothing else has changed.

    `version` is that of the files and `drawn` names the drawing of the page that belongs to it; a page that asks for
    news gives both back.
    """
    return render_template("ui/live.html", status=status, version=version, drawn=drawn, table=table)


def address_of(sweep: str) -> str | None:
    """Return the address of a sweep's page; None for a name that is not UTF-8, which no address can have."""
    try:
        return f"/sweep/{quote(sweep)}"
    except UnicodeEncodeError:
        return None


def compare_address(candidate: str) -> str:
    """Return the address at which a baseline can be chosen."""
    return f"/compare?candidate={quote(candidate, safe='', errors='replace')}"


def _with_script(policy: str) -> str:
    """Allow the server's script, its requests to the server, and forms that lead to the server."""
    directives = {name: sources for name, _, sources in (each.strip().partition(" ") for each in policy.split(";"))}
    directives["script-src"] += f" '{_script_hash()}'"
    directives |= {"connect-src": "'self'", "form-action": "'self'"}
    return "; ".join(f"{name} {sources}" for name, sources in directives.items())


@cache
def _script_hash() -> str:
    digest = hashlib.sha256(read_template("ui/live.js").encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def _style() -> str:
    return f"<style>\n{read_template('ui/live.css')}</style>\n"
