"""No stored text reaches a terminal, a table or a shell as more than text: every command, each of its formats."""

import csv
import io
import os
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from runmanager.records.files.paths import SweepPaths

from .forked_commands import ForkedCommands, Output
from .hostile_sweeps import AXIS, CHOICES, COMMANDS, HOSTILE, METRIC, SWEEPS, WORDS, Place

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs a terminal")

# What rich sends: colours, the cursor of a live table, links never.
_COLOUR = "(?:[0-9]|2[1-9]|[349][0-7]|[34]9)"
_TITLE = r"\x07?\x1b\]0;[^\x00-\x1f]*\x07"  # of the terminal at the end of a sweep, and its bell
_OWN_SEQUENCES = re.compile(rf"\x1b\[(?:(?:{_COLOUR}(?:;{_COLOUR})*)?m|\?25[lh]|2K|\d*[AG])|{_TITLE}")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufeff\uffa0\ufe00-\ufe0f\U000e0000-\U000e0fff]"
)
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


Outputs = dict[tuple[str, ...], dict[bool, Output]]
"""What a command printed on a terminal, and into pipes, by its words."""
OutputsOf = Callable[[str], Outputs]

_ONLY_REFUSED = ("demo", "duel", "tune")
FORMATS = {value for options in CHOICES.values() for values in options.values() for value in values}


def dangers(text: str) -> list[str]:
    """What in a text a terminal would obey or hide; the exact rows that a page's script copies are not shown."""
    text = re.sub(r'data-(csv|header)="[^"]*"', "", text)
    hidden = [each for each in text if each not in "\n\t" and unicodedata.category(each) in _HIDDEN]
    too_many_marks = re.findall("[\u0300-\u036f]{5,}", text)
    return sorted(map(ascii, {*hidden, *_INVISIBLE.findall(text), *too_many_marks}))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place.made_in(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def outputs_of(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutputsOf]:
    """Factory of what a command prints for each of its arguments; it is run once."""
    home = str(tmp_path_factory.mktemp("home"))
    environment = os.environ | {"HOME": home, "XDG_CACHE_HOME": home, "BROWSER": "true", "TERM": "xterm"}
    commands, cases = ForkedCommands(os.fspath(place.folder), environment), place.cases()

    @cache
    def outputs(name: str) -> Outputs:
        shown: Outputs = {}
        for arguments in cases[name]:
            words = (name, *arguments)
            on = (True, False) if FORMATS.isdisjoint(words) or name == "table" else (False,)
            shown[words] = {is_terminal: commands.run(words, is_terminal=is_terminal) for is_terminal in on}
        return shown

    yield outputs
    commands.end()


def test_every_command_is_tried_with_every_choice(place: Place) -> None:
    cases = place.cases()
    assert cases.keys() == COMMANDS.keys()
    for name, options in CHOICES.items():
        words = {word for case in cases[name] for word in case}
        assert {value for values in options.values() for value in values} <= words, name


@pytest.mark.parametrize("command", COMMANDS)
def test_no_terminal_gets_a_control_or_hidden_character(command: str, outputs_of: OutputsOf) -> None:
    found, statuses = {}, set()
    for words, both in outputs_of(command).items():
        for is_terminal, done in both.items():
            statuses.add(done.status)
            out, err = done.out.decode(), done.err.decode()
            assert done.status in (0, 1, 2, 3, 130) and "unexpected" not in out + err, (words, out[-500:], err[-500:])
            if is_terminal:
                out = _OWN_SEQUENCES.sub("", re.sub(r"\r+(?=\n|\x1b\[(?:2K|\d*A))", "", out))
            if words[-2:] == ("--format", "csv") and not is_terminal:
                out = ""
            if faults := [*dangers(out), *dangers(err)]:
                found[words, is_terminal] = faults
    assert found == {}
    assert (statuses == {2}) == (command in _ONLY_REFUSED), "a command that only refuses shows nothing stored"


def _printed_as(format_: str, outputs_of: OutputsOf) -> dict[str, str]:
    """What commands printed into a pipe in a format, by their words."""
    having = [name for name, options in CHOICES.items() if format_ in options.get("--format", ()) and name != "duel"]
    done = {words: both[False] for name in having for words, both in outputs_of(name).items() if format_ in words}
    return {" ".join(words): each.out.decode() for words, each in done.items() if each.status in (0, 1, 3)}


def _written_as(suffix: str, place: Place, outputs_of: OutputsOf) -> dict[str, str]:
    """The files that the command `report` wrote, by their names."""
    outputs_of("report")
    root = SweepPaths(place.folder / "outputs" / SWEEPS[0]).root
    return {path.name: path.read_bytes().decode() for path in root.glob(f"*.{suffix}")}


IN_CSV = {f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text for text in HOSTILE}
"""What a spreadsheet would take for a formula begins with an apostrophe."""


def test_csv_gives_back_exactly_the_stored_texts(place: Place, outputs_of: OutputsOf) -> None:
    texts = _printed_as("csv", outputs_of) | _written_as("csv", place, outputs_of)
    assert {"results.csv", "epochs.csv", "comparison.csv"} < texts.keys() and len(texts) >= 6
    for name, text in texts.items():
        heading, *rows = csv.reader(io.StringIO(text, newline=""))
        assert {len(row) for row in rows} <= {len(heading)}, name
        frame = pd.read_csv(io.StringIO(text, newline=""), dtype=str, keep_default_na=False)
        assert frame.values.tolist() == rows, name
        column = AXIS
        if column in heading:
            assert {row[heading.index(column)] for row in rows} <= {*IN_CSV, ""}, name
    heading, *rows = csv.reader(io.StringIO(texts["results.csv"], newline=""))
    assert {row[heading.index(AXIS)] for row in rows} == IN_CSV
    assert f"last_{METRIC}" in heading or METRIC in heading


def test_markdown_tables_have_whole_rows_and_nothing_but_text(place: Place, outputs_of: OutputsOf) -> None:
    texts = (
        _printed_as("markdown", outputs_of) | _printed_as("github", outputs_of) | _written_as("md", place, outputs_of)
    )
    assert {"results.md", "comparison.md"} < texts.keys() and len(texts) >= 6
    for words, text in texts.items():
        tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(text)
        kinds = {each.type for token in tokens for each in (token, *(token.children or ()))}
        own = {"strong_open", "strong_close", "html_block", "html_inline"} if "github" in words else set()
        assert kinds <= {
            *("table_open", "table_close", "thead_open", "thead_close", "tbody_open", "tbody_close", "tr_open"),
            *("tr_close", "th_open", "th_close", "td_open", "td_close", "inline", "text", "code_inline", "softbreak"),
            *("paragraph_open", "paragraph_close", "heading_open", "heading_close"),
            *("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"),
            *own,
        }, words
        html = {token.content.strip() for token in tokens if token.type == "html_block"}
        assert all(re.fullmatch(r"</?details>(\s*<summary>[\w, ]+</summary>)?", each) for each in html), words
        of_lines = [line for line in text.split("\n") if line.startswith("| ")]
        rendered = sum(each.type == "tr_open" for each in tokens)
        assert rendered == max(0, len(of_lines) - 1), words


def test_markdown_shows_the_texts_as_they_are_shown_elsewhere(
    outputs_of: OutputsOf,
) -> None:
    """Escaping for Markdown is undone by rendering it."""
    out = outputs_of("table")["table", SWEEPS[0], "--format", "markdown"][False].out.decode()
    tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(out)
    cells = ["".join(part.content for part in each.children or ()) for each in tokens if each.type == "inline"]
    for text in HOSTILE[6:9]:
        assert text in cells


def test_latex_has_escaped_texts_in_whole_rows(outputs_of: OutputsOf) -> None:
    texts = _printed_as("latex", outputs_of)
    assert len(texts) == 3
    for words, text in texts.items():
        body = text[text.index(r"\begin{tabular}") :]
        layout, *rows = [line for line in body.splitlines() if not re.fullmatch(r"\\(\w+rule|end\{tabular\})", line)]
        columns = len(layout) - len(r"\begin{tabular}{}")
        assert all(row.endswith(r" \\") for row in rows), words
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} <= {columns}, words
        plain = re.sub(r" \\\\$|\\text\w+\{\}|\\[&%$#_{}]|\$\\pm\$|\{\}| & ", "", "\n".join(rows), flags=re.M)
        assert not set(plain) & set("\\%$#_{}^~"), words


@pytest.mark.parametrize("shell", [("bash", "-c"), ("zsh", "-f", "-c")])
def test_a_printed_command_is_the_stored_one_in_a_shell(
    place: Place, outputs_of: OutputsOf, shell: tuple[str, ...]
) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"needs {shell[0]}")
    (both,) = outputs_of("reproduce").values()
    line = both[False].out.decode().splitlines()[0]
    done = subprocess.run(
        [*shell, "printf '%s\\0' " + line], cwd=place.folder, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.decode().split("\0")[:-1] == ["runmanager", "run", *WORDS]


def test_no_page_or_figure_shows_a_control_or_hidden_character(place: Place, outputs_of: OutputsOf) -> None:
    assert all(done.status == 0 for both in outputs_of("report").values() for done in both.values())
    roots = [SweepPaths(place.folder / "outputs" / name).root for name in SWEEPS]
    paths = [path for root in roots for kind in ("*.html", "*.md", "figures/*.svg") for path in root.glob(kind)]
    assert {path.name for path in paths} > {"report.html", "results.html", "results.md", "comparison.md"}
    assert any(path.suffix == ".svg" for path in paths)
    pages = {path: re.sub(r"<script>.*?</script>", "", path.read_text(), flags=re.DOTALL) for path in paths}
    assert {path.name: dangers(text) for path, text in pages.items() if dangers(text)} == {}
