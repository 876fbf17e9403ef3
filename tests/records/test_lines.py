"""Lines of what anybody may have written."""

import pytest

from runmanager.records.lines import MAX_LINE, bounded, error_line, first_line, writable


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
    cut = bounded("x" * 10_000_000)
    assert len(cut) == MAX_LINE and cut.endswith("xxx… (cut: 10,000,000 characters)")
    assert bounded(cut) == cut
    assert bounded("short") == "short"


def test_a_file_can_hold_what_is_writable() -> None:
    assert writable("a\udcffb").encode() == rb"a\udcffb"
    assert first_line("") == ""
