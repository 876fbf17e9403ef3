"""Text for people: values and commands as typed, bounded lines, no control characters."""

import io
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
    fitted,
    format_value,
    in_backticks,
    pluralize,
    printable,
    shell_command,
    truncated,
    wrapped,
)


@pytest.mark.parametrize(
    ("value", "text"),
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
def test_format_value_writes_values_as_on_the_command_line(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_pluralize_agrees_with_noun_and_verb() -> None:
    assert [pluralize(number, "run") for number in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]
    assert [pluralize(number, "cell waits", "cells wait") for number in (1, 2)] == ["1 cell waits", "2 cells wait"]


@pytest.mark.parametrize(
    ("stored", "line"),
    [
        (("train.py", "--lr", "1"), "python train.py --lr 1"),
        (("python", "-m", "runmanager", "name=a b"), "runmanager run 'name=a b'"),
        (("python", "-m", "runmanager", "-m", "lr=1,2", "--quiet"), "runmanager sweep lr=1,2 --quiet"),
        (("python", "-m", "runmanager", "-m"), "python -m runmanager -m"),  # `runmanager sweep` prints its help
        (("python", "-m", "runmanager.app"), "python -m runmanager.app"),
        (
            ("python", "-m", "runmanager", "experiment=digits_quick", "name=d", "output_root=outputs", "--yes", "lr=1"),
            "runmanager demo name=d lr=1",
        ),
        (("python", "-m", "runmanager", "-m", "experiment=digits_quick"), "runmanager sweep experiment=digits_quick"),
        (
            (
                *("python", "-m", "runmanager", "-m", "measure=paired", "name=d", "output_root=there", "epochs=1"),
                *(r'hydra.sweeper.sides=["model=cnn lr=0.1","note=\"a\""]', "batch_size=10"),
            ),
            "runmanager duel 'model=cnn lr=0.1' 'note=\"a\"' name=d output_root=there batch_size=10",
        ),
        ((), ""),
    ],
)
def test_shell_command_restores_the_typed_command(stored: tuple[str, ...], line: str) -> None:
    assert shell_command(stored) == line


@pytest.mark.parametrize("width", [20, 40, 80])
def test_wrapped_breaks_at_spaces_and_never_within_a_command(width: int) -> None:
    name = "outputs/a-name-that-is-much-longer-than-the-line-of-any-terminal-that-is-eighty-columns-wide"
    command = f"`runmanager table {name} --each`"
    text = f"The runs are shown by {command}, and a bare {name}.\nSecond line.\n\n  indented `a b` end"
    lines = wrapped(text, width).split("\n")
    assert sum(command in line for line in lines) == 1 and sum(line.startswith(name) for line in lines) >= 1
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    assert all(len(line) <= width for line in lines if name not in line)
    assert lines[-1].startswith("  ")


def test_text_is_fitted_to_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "30")
    text = "a sentence that is longer than thirty characters"
    assert fitted(text, None) == fitted(text, io.StringIO()) == text
    assert fitted(text, Terminal()) == "a sentence that is longer than\nthirty characters"
    assert fitted(text, Terminal(), indent=2) == "a sentence that is longer\nthan thirty characters"


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("lr=1", "`lr=1`"), ("a`b", "``a`b``"), ("a``", "``` a`` ```"), ("`a`b``c", "``` `a`b``c ```")],
)
def test_in_backticks_uses_more_backticks_than_the_text_has(text: str, quoted: str) -> None:
    assert in_backticks(text) == quoted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loss 0.1\tacc 0.9\nänd 漢字 é ± 🙂", "loss 0.1\tacc 0.9\nänd 漢字 é ± 🙂"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;a title\x07", r"\x1b]0;a title\x07"),
        ("10%\r20%\r\ndone", r"10%\r20%" + "\ndone"),
        ("\x9b2J\x7f\x08", r"\x9b2J\x7f\x08"),
        ("name=\u202etxt.exe", r"name=\u202etxt.exe"),
        ("not UTF-8: \udcff", r"not UTF-8: \udcff"),
    ],
)
def test_printable_escapes_control_characters(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_printable_text_is_encodable_and_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    shown.encode()
    assert printable(shown) == shown


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even its message")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("lr must be above 0"), "ValueError: lr must be above 0"),
        (ValueError("\n\n  at last\nmore"), "ValueError: at last"),
        (KeyError("a\nb"), r"KeyError: 'a\nb'"),
        (ValueError(""), "ValueError"),
        (ValueError(" \n "), "ValueError"),
        (OSError("name \udcff"), r"OSError: name \udcff"),
        (UnprintableError(), "UnprintableError"),
    ],
)
def test_error_line_is_one_line(error: Exception, line: str) -> None:
    assert error_line(error) == line


def test_truncated_cuts_a_line_once_and_names_its_length() -> None:
    cut = truncated("x" * 10_000_000)
    assert len(cut) == MAX_LINE and cut.endswith("xxx… (cut: 10,000,000 characters)")
    assert truncated(cut) == cut
    assert truncated("short") == "short"


def test_encodable_text_can_be_written_to_a_file() -> None:
    assert encodable("a\udcffb").encode() == rb"a\udcffb"
    assert first_line("") == ""
