"""Tables as CSV, JSON and Markdown, and the formatting of values."""

import csv
import io
import json
import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.results.table_model.columns import Row, Table
from runmanager.results.table_model.formatting import human, human_columns
from runmanager.results.tables.text_formats import escape_markdown, to_csv, to_json, to_latex, to_markdown

ROW = {"lr": 1e-05, "hidden": [8, 4], "status": "finished", "reason": None, "accuracy": 0.98765, "loss": None}
TABLE = Table(
    columns=list(ROW),
    rows=[Row(ROW)],
    settings=("lr", "hidden"),
    shown=("lr", "status", "accuracy", "loss"),
    legend="L",
)


def test_csv_has_all_columns_in_full_precision():
    assert to_csv(TABLE) == 'lr,hidden,status,reason,accuracy,loss\n1e-05,"[8, 4]",finished,,0.98765,\n'


@given(st.floats(allow_nan=False))
def test_a_float_in_a_csv_reads_back_as_the_same_number(value):
    text = to_csv(Table(["x"], [Row({"x": value})]))
    assert float(next(csv.DictReader(io.StringIO(text)))["x"]) == value


TEXTS = st.text() | st.sampled_from(
    [
        *(
            'a,"b"\nc',
            "a\rb",
            "\r",
            "a\r\nb",
            "\n",
            "a\x00b",
            '"lone',
            "'lone",
            " lead",
            "trail ",
            "a\tb",
            "a\u2028b",
            "\x85",
            "\x1a",
        ),
        *("=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "-", "--lr", "-0.5", "+1e-3", "1-1", "NA", "#", "\\"),
    ]
)


def without_formula(text: str) -> str:
    """The text as a spreadsheet may read it: numbers stay, and what it would take for a formula begins with `'`."""
    is_number = re.fullmatch(r"[+-]([\d.]+([eE][+-]?\d+)?|inf|nan)", text, re.ASCII) is not None
    return f"'{text}" if text[:1] in tuple("=+-@\t\r") and text and not is_number else text


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "-", "--lr"])
def test_a_csv_has_no_formulas(text):
    table = to_csv(Table([text], [Row({text: text})]))
    assert next(csv.reader(io.StringIO(table))) == [f"'{text}"]
    assert next(csv.DictReader(io.StringIO(table)))[f"'{text}"] == f"'{text}"


@pytest.mark.parametrize("text", ["-1", "-0.5", "+1e-3", "-inf", "1-1", "a=1"])
def test_numbers_and_other_texts_in_a_csv_are_unchanged(text):
    assert to_csv(Table(["x"], [Row({"x": text})])) == f"x\n{text}\n"


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1), TEXTS)
def test_a_csv_gives_back_exactly_the_texts(rows, name):
    names = ["run", f"settings.{name}"]
    text = to_csv(Table(names, [Row(dict(zip(names, row, strict=True))) for row in rows]))
    assert text.encode(errors="surrogatepass").decode(errors="surrogatepass") == text
    expected = [[without_formula(each) for each in row] for row in rows]
    assert list(csv.reader(io.StringIO(text, newline=""))) == [names, *expected]
    if "\ud800" <= max(text) <= "\udfff":
        return  # pandas encodes what it reads
    for engine in ("c", "python"):
        frame = pd.read_csv(io.StringIO(text, newline=""), dtype=str, keep_default_na=False, engine=engine)
        assert (list(frame.columns), frame.values.tolist()) == (names, expected)


def test_json_is_a_list_of_rows_with_null_for_nan_and_missing_values():
    text = to_json(Table(["b", "a"], [Row({"a": float("nan"), "b": True}), Row({"a": None, "b": [1]})]))
    assert json.loads(text) == [{"b": True, "a": None}, {"b": [1], "a": None}]
    assert text.index('"b"') < text.index('"a"')


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (None, "loss", "N/A"),
        (None, "reason", ""),
        (0.1 + 0.2, "loss", "0.3000"),
        (123456.7, "samples_per_second", "123,500"),
        (999.96, "samples_per_second", "1000"),
        (0.00001234567, "loss", "1.235e-05"),
        (0.98764, "val_accuracy", "0.9876"),
        (3 * 2**19, "peak_memory_bytes", "1.5 MiB"),
        (0.30000000000000004, "lr", "0.30000000000000004"),
        (1e-05, "lr", "1e-05"),
        (True, "contended", "true"),
        (False, "evaluate_first", "false"),
        ("a\x1b[31mb", "model._target_", r"a\x1b[31mb"),
        ([32, 16], "model.hidden", "[32, 16]"),
        (20000, "batch_size", "20000"),
        (float("inf"), "loss", "inf"),
        (1e300, "loss", "1e+300"),
        (1e308, "val_accuracy", "1e+308"),
        (-1.5, "accuracy", "-1.5000"),
        (float("nan"), "accuracy", "nan"),
        (10**300, "peak_memory_bytes", "9.537e+293 MiB"),
        (1.42e-05, "latency_p50_seconds", "14.20 µs"),
        (0.0123, "latency_p99_seconds", "12.30 ms"),
        (2.5, "latency_p90_seconds", "2.500 s"),
        (12.5, "latency_ms", "12.5"),  # a program's own, whose unit is not known
    ],
)
def test_values_are_formatted_for_people(value, column, text):
    assert human(value, column) == text


def test_empty_columns_are_hidden_and_contention_is_shown_only_if_it_occurred():
    table = Table(
        ["a", "contended", "loss"], [Row({"a": 1, "contended": False, "loss": None})], shown=("a", "contended")
    )
    assert human_columns(table) == ["a"]
    table.rows[0].values["contended"] = True
    assert human_columns(table) == ["a", "contended"]
    assert human_columns(TABLE) == ["lr", "status", "accuracy"]


def test_a_setting_name_with_a_pipe_is_escaped_in_markdown():
    assert to_markdown(Table(["a|b"], [{"a|b": 1}], shown=("a|b",))).startswith("| a\\|b |\n| ---: |\n| 1 |\n")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("batch_size=10 [0.9, 1.1]", "batch_size=10 [0.9, 1.1]"),
        ("model._target_=a.B", r"model.\_target\_=a.B"),
        ("2 * 3 * 4", r"2 \* 3 \* 4"),
        ("say `x_ * _y`\nand _z_", r"say `x_ * _y` and \_z\_"),
        ("![a](http://evil/x.png) [b][c] `d[0](e)`", r"![a]\(http://evil/x.png) [b]\[c] `d[0](e)`"),
        ("[a]: http://evil", r"\[a]: http://evil"),
        ("# no heading", r"\# no heading"),
        ("> no quotation", r"\> no quotation"),
        ("-0.5 - #3", "-0.5 - #3"),
    ],
)
def test_text_is_escaped_for_markdown(text, escaped):
    assert escape_markdown(text) == escaped


def test_markdown_has_the_table_its_legend_and_notes():
    table = Table(
        ["name", "loss"], [Row({"name": "a|b<i>", "loss": 2.0})], shown=("name", "loss"), legend="L.", notes=("N.",)
    )
    assert to_markdown(table) == "| name | loss |\n| --- | ---: |\n| a\\|b&lt;i> | 2.000 |\n\nL.\n\nN.\n"


def test_a_row_of_latex_does_not_begin_with_an_argument_of_the_row_before():
    table = Table(["a", "b"], [{"a": "[2pt]", "b": "50% {x}_1"}, {"a": "*", "b": r"\input{x}"}], shown=("a", "b"))
    rows = to_latex(table).splitlines()[4:6]
    assert rows == [r"{}[2pt] & 50\% \{x\}\_1 \\", r"{}* & \textbackslash{}input\{x\} \\"]
