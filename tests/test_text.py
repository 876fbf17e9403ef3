"""Tests of text for people: values as they are typed, bounded lines, nothing that steers a terminal."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.text import (
    MAX_LINE,
    encodable,
    error_line,
    first_line,
    format_value,
    in_backticks,
    pluralize,
    printable,
    shell_command,
    truncated,
)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1e-05, "1e-05"),
        ("cuda:1", "cuda:1"),
        ([32, None, True], "[32, null, true]"),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_a_value_reads_as_it_is_typed(value: Any, said: str) -> None:
    assert format_value(value) == said


def test_a_count_agrees_with_its_noun_and_verb() -> None:
    assert [pluralize(number, "run") for number in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]
    assert [pluralize(number, "cell waits", "cells wait") for number in (1, 2)] == ["1 cell waits", "2 cells wait"]


@pytest.mark.parametrize(
    ("stored", "line"),
    [
        (("train.py", "--lr", "1"), "python train.py --lr 1"),
        (("python", "-m", "runmanager", "name=a b"), "python -m runmanager 'name=a b'"),
        ((), ""),
    ],
)
def test_a_stored_command_is_said_as_it_was_typed(stored: tuple[str, ...], line: str) -> None:
    assert shell_command(stored) == line


@pytest.mark.parametrize(
    ("text", "set_apart"),
    [("lr=1", "`lr=1`"), ("a`b", "``a`b``"), ("a``", "``` a`` ```"), ("`a`b``c", "``` `a`b``c ```")],
)
def test_backticks_within_what_is_set_apart_take_more_around_it(text: str, set_apart: str) -> None:
    assert in_backticks(text) == set_apart


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loss 0.1\tacc 0.9\nänd 漢字 é ± 🙂", "loss 0.1\tacc 0.9\nänd 漢字 é ± 🙂"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;a title\x07", r"\x1b]0;a title\x07"),
        ("10%\r20%\r\ndone", r"10%\r20%" + "\ndone"),
        ("\x9b2J\x7f\x08", r"\x9b2J\x7f\x08"),
        ("name=\u202etxt.exe", r"name=\u202etxt.exe"),
        ("no UTF-8: \udcff", r"no UTF-8: \udcff"),
    ],
)
def test_what_steers_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_it_can_be_sent_and_is_the_same_said_twice(text: str) -> None:
    shown = printable(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    shown.encode()
    assert printable(shown) == shown


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even its message")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("lr must be above 0"), "ValueError: lr must be above 0"),
        (ValueError("\n\n  at last\nmore"), "ValueError: at last"),
        (KeyError("a\nb"), r"KeyError: 'a\nb'"),
        (ValueError(""), "ValueError"),
        (ValueError(" \n "), "ValueError"),
        (OSError("name \udcff"), r"OSError: name \udcff"),
        (Speechless(), "Speechless"),
    ],
)
def test_an_error_is_a_line(error: Exception, said: str) -> None:
    assert error_line(error) == said


def test_a_line_is_cut_once_and_says_how_long_it_was() -> None:
    cut = truncated("x" * 10_000_000)
    assert len(cut) == MAX_LINE and cut.endswith("xxx… (cut: 10,000,000 characters)")
    assert truncated(cut) == cut
    assert truncated("short") == "short"


def test_a_file_can_hold_what_is_writable() -> None:
    assert encodable("a\udcffb").encode() == rb"a\udcffb"
    assert first_line("") == ""
