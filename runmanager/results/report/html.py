"""Pages from `templates/`: styles, script and all values are in them, and nothing is asked for from elsewhere."""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runmanager.results.model.columns import Table
from runmanager.results.report.html_table import build_html_table
from runmanager.text import printable

if TYPE_CHECKING:
    import jinja2

__all__ = ["render_template", "to_html"]

_PIECES = 1000  # of a page put together at a time: a table of many rows has far more of them than it is long
_APART = re.compile("(?<!`)(`+)(?!`)(.+?)(?<!`)\\1(?!`)", re.DOTALL)  # as Markdown reads it
_TEMPLATES = Path(__file__).parent / "templates"


def to_html(table: Table, *, title: str = "Results") -> str:
    """The columns for people, rounded; what is copied from the page has every column, in full precision."""
    return render_template("results.html", title=title, table=build_html_table(table, title=title, file="results.csv"))


def render_template(template: str, **values: Any) -> str:
    """A page or a part of one from `templates/`; every value is escaped, and what steers text is written out.

    A page's policy lets the browser run the page's own script, known by its hash, and load nothing.
    """
    stream = _environment().get_template(template).stream(**values)
    stream.enable_buffering(_PIECES)
    return "".join(stream)


@cache
def _environment() -> "jinja2.Environment":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_legible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(script=script, script_hash=f"sha256-{digest}")
    environment.filters.update(said=_said, verbatim=_verbatim)
    return environment


def _legible(value: Any) -> Any:
    """A text with what would turn its direction, or has no place in a page, written out; elements as they are."""
    return printable(value) if type(value) is str else value


def _said(text: str) -> str:
    """A sentence, what stands in backticks set apart (see `in_backticks`), a command word by word to break there."""
    from markupsafe import Markup, escape

    return Markup(_APART.sub(_code, str(escape(printable(text)))))


def _code(found: re.Match[str]) -> str:
    whole = found[2].removeprefix(" ").removesuffix(" ") if "`" in found[2] else found[2]
    words = whole.split(" ")
    return f"<code>{whole if len(words) == 1 else ' '.join(word and f'<span>{word}</span>' for word in words)}</code>"


def _verbatim(text: str) -> str:
    """Text that a script reads back as it is: a parser takes a carriage return in a page for a line break."""
    from markupsafe import Markup, escape

    return Markup(escape(text).replace("\r", Markup("&#13;")))
