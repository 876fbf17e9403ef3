"""Self-contained HTML pages from `templates/`, with inline styles and script."""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runmanager.results.report.html_table import build_html_table
from runmanager.results.table_model.columns import Table
from runmanager.text import CODE_SPAN, encodable, printable

if TYPE_CHECKING:
    import jinja2

__all__ = ["render_template", "to_html"]

_BUFFERED_PIECES = 1000  # joined at a time: a page with a large table has very many small pieces
_TEMPLATES = Path(__file__).parent / "templates"
_CHARTS = (
    *("view", "drawing", "curves", "parallel", "scatter", "intervals"),
    *("copying", "figures", "selection", "panel", "live"),
)
"""The modules in `templates/charts` in the order in which they are joined; `start` follows."""


def to_html(table: Table, *, title: str = "Results") -> str:
    """A page with the table's main columns, rounded; the CSV copied from it has all columns in full precision."""
    return render_template("results.html", title=title, table=build_html_table(table, title=title, file="results.csv"))


def render_template(template: str, **values: Any) -> str:
    """Render a page or a fragment from `templates/`; values are escaped, control characters made visible.

    The page's Content-Security-Policy lets the browser run the page's own scripts, identified by their hashes, and
    load nothing.
    """
    stream = _environment().get_template(template).stream(**values)
    stream.enable_buffering(_BUFFERED_PIECES)
    return "".join(stream)


@cache
def _environment() -> "jinja2.Environment":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    library, *tables = (_TEMPLATES / name for name in ("echarts.js", "columns.js", "page.js"))
    charts = [*tables, *(_TEMPLATES / "charts" / f"{name}.js" for name in (*_CHARTS, "start"))]
    environment.globals.update(table_scripts=[_script(*tables)], chart_scripts=[_script(library), _script(*charts)])
    environment.filters.update(sentence=_sentence, verbatim=_verbatim)
    return environment


def _script(*files: Path) -> tuple[str, str]:
    """The text of a script that consists of these files, and its hash as a content policy names it."""
    script = "\n".join(path.read_text(encoding="utf-8") for path in files)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return script, f"'sha256-{digest}'"


def _printable(value: Any) -> Any:
    """A string with control and direction characters made visible; `Markup` and other values unchanged."""
    return printable(value) if type(value) is str else value


def _sentence(text: str) -> str:
    """Escaped text with `<code>` elements for code in backticks (see `in_backticks`), which wrap between words."""
    from markupsafe import Markup, escape

    return Markup(CODE_SPAN.sub(_code_element, str(escape(printable(text)))))  # noqa: S704  # of escaped text


def _code_element(match: re.Match[str]) -> str:
    code = match[2].removeprefix(" ").removesuffix(" ") if "`" in match[2] else match[2]
    words = code.split(" ")
    return f"<code>{code if len(words) == 1 else ' '.join(word and f'<span>{word}</span>' for word in words)}</code>"


def _verbatim(text: str) -> str:
    """Escaped text that a script reads back unchanged: an HTML parser would turn carriage returns into newlines."""
    from markupsafe import Markup, escape

    return Markup(escape(encodable(text)).replace("\r", Markup("&#13;")))  # noqa: S704  # of escaped text
