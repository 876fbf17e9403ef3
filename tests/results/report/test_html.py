"""Pages of a table: what others wrote is text, and the page's own script is all that may run."""

import base64
import hashlib
import re

import pytest

from runmanager.results.model.columns import Row, Table
from runmanager.results.report.html import to_html


def test_a_page_escapes_and_asks_for_nothing_from_elsewhere():
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
    ("said", "shown"),
    [
        (
            "`lr=1` and `a  'b <c>'`",
            "<code>lr=1</code> and <code><span>a</span>  <span>'b</span> <span>&lt;c&gt;'</span>",
        ),
        ("``a`b``, `` `x ``", "<code>a`b</code>, <code>`x</code>"),
        ("no `end and ``none", "no `end and ``none"),
    ],
)
def test_what_stands_in_backticks_is_set_apart_and_commands_word_by_word(said, shown):
    assert shown in to_html(Table(["lr"], [], shown=("lr",), notes=(said,))).replace("&#39;", "'")


def test_only_the_pages_own_script_may_run():
    page = to_html(Table(["lr"], [], shown=("lr",)))
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}';" in policy
    assert len(script.splitlines()) <= 155


def test_numbers_are_there_in_full_and_what_is_missing_is_marked():
    rows = [Row({"lr": 0.1, "loss": 0.123456789}), Row({"lr": None, "loss": float("inf")})]
    page = to_html(Table(["lr", "loss"], rows, shown=("lr", "loss")))
    assert '<td class="number">0.1</td>' in page  # it says itself
    assert '<td class="number" data-value="0.123456789">0.1235</td>' in page
    assert '<td class="number" data-value="">N/A</td>' in page
    assert '<td class="number" data-value="Infinity">inf</td>' in page
    assert 'data-header="lr,loss\n"' in page
    assert '<tr data-csv="0.1,0.123456789\n">' in page


def test_what_steers_a_text_is_written_out_in_a_page_and_kept_in_its_csv():
    row = {"name": "a\x00b\u202ec\x1b"}
    page = to_html(Table(["name"], [Row(row)], shown=("name",), notes=("of a\x00b\u202ec\x1b",)), title="a\x00b\u202ec")
    assert "<title>a\\x00b\\u202ec</title>" in page
    assert "of a\\x00b\\u202ec\\x1b</p>" in page
    assert '<tr data-csv="a\x00b\u202ec\x1b\n">' in page
