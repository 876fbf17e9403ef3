"""HTML pages of a table: escaping, the Content-Security-Policy, and exact values."""

import base64
import hashlib
import re

import pytest

from runmanager.results.report.html_table import to_html
from runmanager.results.table_model.columns import Row, Table


def test_a_page_escapes_user_text_and_loads_nothing():
    row = {"status": "<script>alert(1)</script>", "lr": '"><img src=x>'}
    page = to_html(Table(list(row), [Row(row)], shown=("lr", "status"), notes=("<b>", "say `a<b`")), title="<i>")
    assert page.count("<script") == 1
    assert "<img" not in page
    assert "<i>" not in page
    assert "&lt;script&gt;" in page
    assert "say <code>a&lt;b</code>" in page
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.parametrize(
    ("note", "element"),
    [
        (
            "`lr=1` and `a  'b <c>'`",
            "<code>lr=1</code> and <code><span>a</span>  <span>'b</span> <span>&lt;c&gt;'</span>",
        ),
        ("``a`b``, `` `x ``", "<code>a`b</code>, <code>`x</code>"),
        ("no `end and ``none", "no `end and ``none"),
    ],
)
def test_text_in_backticks_becomes_code_that_wraps_between_words(note, element):
    assert element in to_html(Table(["lr"], [], shown=("lr",), notes=(note,))).replace("&#39;", "'")


def test_only_the_pages_own_script_may_run():
    page = to_html(Table(["lr"], [], shown=("lr",)))
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}';" in policy
    assert len(script.splitlines()) <= 230


def test_fields_have_their_exact_values_and_missing_values_are_marked():
    rows = [Row({"lr": 0.1, "loss": 0.123456789}), Row({"lr": None, "loss": float("inf")})]
    page = to_html(Table(["lr", "loss"], rows, shown=("lr", "loss")))
    assert '<td class="number">0.1</td>' in page  # the text is exact
    assert '<td class="number" data-value="0.123456789">0.1235</td>' in page
    assert '<td class="number" data-value="">N/A</td>' in page
    assert '<td class="number" data-value="Infinity">inf</td>' in page
    assert 'data-header="lr,loss\n"' in page
    assert '<tr data-csv="0.1,0.123456789\n">' in page


def test_control_characters_are_visible_in_the_page_and_unchanged_in_its_csv():
    row = {"name": "a\x00b\u202ec\x1b"}
    page = to_html(Table(["name"], [Row(row)], shown=("name",), notes=("of a\x00b\u202ec\x1b",)), title="a\x00b\u202ec")
    assert "<title>a\\x00b\\u202ec</title>" in page
    assert "of a\\x00b\\u202ec\\x1b</p>" in page
    assert '<tr data-csv="a\x00b\u202ec\x1b\n">' in page


def test_headings_are_words_with_the_column_as_their_title():
    row = {"run": "a", "status": "finished", "lr": 0.1, "val_accuracy": 0.5, "loss": 1.0, "peak_memory_bytes": 1}
    table = Table(list(row), [Row(row)], settings=("lr",), shown=("lr", *list(row)[1:2], *list(row)[3:]))
    page = to_html(table)
    assert '<th scope="col" class="number">lr</th>' in page
    heading = '<th scope="col" class="number" data-name="val_accuracy" title="val_accuracy">validation accuracy</th>'
    assert heading in page
    assert 'data-spare="1 4 3"' in page  # the state of all, then memory and loss; never the settings and the outcome
