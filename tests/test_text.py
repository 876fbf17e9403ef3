"""Text for people: values and commands as typed, bounded lines, no control characters."""

import io
import json
import os
import shutil
import subprocess
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
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
    printable_json,
    printable_line,
    printable_value,
    shell_command,
    shell_join,
    text_width,
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
        ("a\u200bb\ufeff\u2060\u00ad\U000e0041", r"a\u200bb\ufeff\u2060\xad\U000e0041"),
        ("a\u2028b\u2029\x85", r"a\u2028b\u2029\x85"),
        ("a\u00a0b\u3000\u3164\u2800\ue000", r"a\xa0b\u3000\u3164\u2800\ue000"),
        ("⚠\ufe0f a\ufe0f \u2713\ufe0e", "⚠\ufe0f a\\ufe0f \u2713\\ufe0e"),
        ("e\u0301 नमस्ते Tiê\u0301ng", "e\u0301 नमस्ते Tiê\u0301ng"),
        ("z" + "\u0301" * 6, "z" + "\u0301" * 4 + r"\u0301\u0301"),
        ("\u0338 =\u0338", r"\u0338 =\u0338"),  # an unequal sign
    ],
)
def test_printable_escapes_what_a_terminal_obeys_or_hides(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text() | st.text(alphabet="a e\u0301\u0338\ufe0f⚠\u200d\r\n\t|`"))
def test_printable_text_is_encodable_and_stays_as_it_is(text: str) -> None:
    for function in (printable, printable_line):
        shown = function(text)
        hidden = [each for each in shown if unicodedata.category(each) in ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")]
        assert set(hidden) <= ({"\n", "\t"} if function is printable else set())
        shown.encode()
        assert function(shown) == shown
        assert function(f"'{shown}' {shown}") == f"'{shown}' {shown}", "a part of a line is shown as it is shown alone"


@given(st.text())
def test_printable_json_is_the_same_json(text: str) -> None:
    written = printable_json(json.dumps({text: text}, ensure_ascii=False, indent=1))
    assert json.loads(written) == {text: text}
    assert printable(written) == written


def test_a_value_is_one_line_of_bounded_length() -> None:
    assert printable_value(["a\n", None]) == r'["a\n", null]'
    assert printable_value("a\r\n\tb") == r"a\r\n\tb"
    assert len(printable_value("x" * 7000)) == MAX_LINE


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("±", 1), ("🙂", 2)])
def test_text_width_counts_the_columns_of_a_terminal(text: str, width: int) -> None:
    assert text_width(text) == width


SHELLS = [["bash", "-c"], ["zsh", "-f", "-c"]]
INTERACTIVE = [
    ["bash", "--norc", "-i"],
    ["zsh", "-f", "-i"],
    [
        "zsh",
        "-f",
        "-i",
        *("-o", "extendedglob", "-o", "magicequalsubst", "-o", "nullglob", "-o", "interactivecomments"),
    ],
]
SPECIAL = "=~*?[]{},!^#%$`'\"\\ \t\n\r;&|<>()-+:@.\x1b\x07\x7f\u0301\u200b\u202eé漢\udcff" + "ab1"
HOSTILE_WORDS = (
    *("=ls", "~", "~root", "*", "?", "[a]", "{a,b}", "!x", "!!", "a!b'c", "^a^b", "#c", "%1", "a=~", "a==ls", "a:=ls"),
    *("lr==0.1", "$(x)", "`x`", "\\", "\\'", "a\nb!", "a\tb", "\x1b[31m", "é", "\u202e", "", "-n", "x\udcff", "\u0301"),
    *("a;b", "a&b", "<x", "'!'", "''", "$'x'", '"!"', 'it\'s "!x"', "**", "=", "==", "%", "%s", "a=b", "if"),
)


def words_read_by(shell: Sequence[str], words: Sequence[str]) -> list[str]:
    """The words that a shell passes to a program where a printed command has these."""
    line = "printf '%s\\0' " + shell_join(words)
    assert line == printable_line(line)
    if "-i" not in shell:
        out = subprocess.run([*shell, line], capture_output=True, check=True, timeout=60).stdout
    else:  # a history, in which the words of the line would be looked for
        out = subprocess.run(
            shell,
            input=f"echo ls x a\n{line}\necho !echo\n".encode(),
            capture_output=True,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HISTFILE": os.devnull},
            check=False,
            timeout=60,
        ).stdout.removeprefix(b"ls x a\n")
        out, expanded = out.rsplit(b"\0", 1)
        assert expanded == b"echo ls x a\n", "this shell looks for words after ! in its history"
        out += b"\0"
    return [os.fsdecode(word) for word in out.split(b"\0")[:-1]]


@pytest.mark.parametrize("shell", [*SHELLS, *INTERACTIVE], ids=" ".join)
def test_a_printed_command_is_read_as_its_words(shell: list[str]) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"needs {shell[0]}")
    assert words_read_by(shell, HOSTILE_WORDS) == list(HOSTILE_WORDS)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@settings(max_examples=25)
@given(st.lists(st.text(alphabet=SPECIAL) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_any_words_are_read_as_they_are(shell: list[str], words: list[str]) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"needs {shell[0]}")
    assert words_read_by(shell, ["x", *words]) == ["x", *words]


def test_the_program_of_a_printed_command_is_no_assignment() -> None:
    assert shell_command(("a=b", "c=d")) == "''a=b c=d"


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
