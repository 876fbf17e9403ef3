"""Self-contained HTML pages from `templates/`, with inline styles and script, and the tables in them."""

import base64
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runmanager.results.table_model.columns import Row, Table
from runmanager.results.table_model.formatting import heading, human_columns, human_field, in_words, is_number
from runmanager.results.tables.sorting import OMITTED_FROM_RESULTS, omission_order
from runmanager.results.tables.text_formats import csv_fields, csv_text
from runmanager.text import CODE_SPAN, encodable, printable, printable_line

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

_REASON = "reason"
_COLOURED_COLUMNS = ("status", "verdict")
_WORST_FIRST = (
    *("failed", "crashed", "killed", "skipped", "running", "pending", "finished"),
    *("faster", "inconclusive"),
)
_CUT = "cut"
_TIME, _TIME_OF_DAY = "created", re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_ONE_LINE = {_TIME: "line", "states": "line", "command": _CUT}
"""Columns of sweeps that stay on one line, with their class."""

_LONG_TEXT = 60  # characters; longer fields get a wide column


@dataclass(frozen=True)
class HtmlRow:
    """The `<td>` elements of a row, and its lines of CSV: one for each run that it stands for.

    `runs` are the places of the row's runs in the page's data, separated by spaces; None if no figure selects the row.

    The page sorts and filters by an element's `data-value` if it has one, else by its text: a number in full precision,
    empty for a missing value. The elements are made here because a template takes several times as long.
    """

    fields: "Markup"
    csv: str
    runs: str | None = None


@dataclass(frozen=True)
class HtmlTable:
    """What `table.html` shows of a table.

    `file` is the name of the downloaded CSV, `headings` are the names of the columns in words, `numeric` are the
    right-aligned columns, `spare` the places of those that a narrow page may hide, in this order, and `example` is a
    filter that some rows match.
    """

    title: str
    file: str
    columns: Sequence[str]
    headings: Sequence[str]
    numeric: frozenset[str]
    spare: Sequence[int]
    example: str
    csv_header: str
    rows: Sequence[HtmlRow]
    legend: str
    notes: Sequence[str]


def build_html_table(
    table: Table,
    *,
    title: str,
    link: Callable[[Row], str | None] | None = None,
    file: str,
    whole: Table | None = None,
    of_row: Mapping[str, Sequence[Row]] | None = None,
    runs: Sequence[Sequence[int]] | None = None,
) -> HtmlTable:
    """Prepare `table` for a page; the copied CSV has the columns of the `whole` table, by default of `table` itself.
    `link` returns the address that the first field of a row leads to, if any.

    `of_row` maps the `run` of a row to the rows of the whole table that it stands for, by default the row itself.
    `runs` has for each row the places of its runs in the page's data.
    """
    from markupsafe import Markup

    columns = human_columns(table)
    numeric = frozenset(name for name in columns if is_number(table, name))
    exported = (whole or table).columns
    fields = [_field_writer(table, name, is_numeric=name in numeric) for name in columns]
    if link is not None:
        fields[0] = _linked_field_writer(table, columns[0], link)
    rows = [
        HtmlRow(
            Markup("".join([field(row) for field in fields])),  # noqa: S704  # of escaped fields
            _csv(exported, [row] if of_row is None else of_row[row["run"]]),
            None if runs is None else " ".join(map(str, runs[number])),
        )
        for number, row in enumerate(table.rows)
    ]
    return HtmlTable(
        title=title,
        file=file,
        columns=columns,
        headings=[printable_line(heading(name, table)) for name in columns],
        numeric=numeric,
        spare=_spare(table, columns),
        example=_example(table, next((name for name in columns if name in numeric), None)),
        csv_header=csv_text([exported]),
        rows=rows,
        legend=in_words(table.legend),
        notes=[in_words(note) for note in table.notes],
    )


def _spare(table: Table, columns: Sequence[str]) -> list[int]:
    """The places of the columns that a narrow page may hide, in this order; the first one and reasons stay."""
    order = dict.fromkeys(name for names in (*omission_order(table), OMITTED_FROM_RESULTS) for name in names)
    return [columns.index(name) for name in order if name in columns[1:] and name != _REASON]


def _field_writer(table: Table, column: str, *, is_numeric: bool) -> Callable[[Row], str]:
    """A function that writes the `<td>` element of a row in this column."""
    from markupsafe import Markup, escape

    def write(row: Row) -> str:
        text, exact = human_field(table, row, column), _exact_value(row[column])
        if column == _REASON:
            text, exact = in_words(text), row[column]
        if column in _ONE_LINE:
            kind = _ONE_LINE[column]
        elif column in _COLOURED_COLUMNS:
            kind = f"word {_colour_class(text)}"
        else:
            kind = "text" if len(text) > _LONG_TEXT else "number" if is_numeric else ""
        class_ = f' class="{kind}"' if kind else ""
        if kind == _CUT:  # it opens where it is pointed at, or has the focus
            class_ += ' tabindex="0"'
        data = "" if exact is None or exact == text else f' data-value="{escape(exact)}"'
        inner = escape(text)
        if column == _TIME and _TIME_OF_DAY.fullmatch(text):  # the page shows how long ago it was
            inner = Markup('<time datetime="{}Z">{}</time>').format(text.replace(" ", "T"), text)
        return f"<td{class_}{data}>{inner}</td>"

    return write


def _linked_field_writer(table: Table, column: str, link: Callable[[Row], str | None]) -> Callable[[Row], str]:
    """A function that writes the `<td>` element of a row in this column of texts, as a link."""
    from markupsafe import escape

    def write(row: Row) -> str:
        text, address = escape(human_field(table, row, column)), link(row)
        linked = text if address is None else f'<a href="{escape(address)}">{text}</a>'
        return f"<td>{linked}</td>"

    return write


def _colour_class(text: str) -> str:
    """The status or verdict that gives a field its colour; the worst one if there are several, as for seeds."""
    return next((word for word in _WORST_FIRST if word in text), "")


def _exact_value(value: Any) -> str | None:
    """A number in JavaScript's notation, an empty string for a missing value, None for a text."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return str(value)
    return "" if math.isnan(value) else repr(float(value)).replace("inf", "Infinity")


def _example(table: Table, column: str | None) -> str:
    known = (value for row in table.rows if column is not None and (value := _exact_value(row[column])))
    value = next(known, None)
    return "" if value is None else f"{column}>={value}"


def _csv(columns: Sequence[str], rows: Iterable[Row]) -> str:
    return csv_text(csv_fields(row, columns) for row in rows)


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
    environment.globals.update(
        table_scripts=[_script(*tables)],
        chart_scripts=[_script(library), _script(*charts)],
        list_scripts=[_script(*tables), _script(_TEMPLATES / "ui" / "ages.js")],
    )
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
