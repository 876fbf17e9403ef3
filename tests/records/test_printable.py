"""Tests of what a terminal may be shown: nothing in it steers the terminal, and all of it is there."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.records.printable import printable


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
