"""No stored text reaches a terminal, a table or a shell as more than text: every command, each of its formats."""

import csv
import io
import os
import re
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from runmanager.records.files.paths import SweepPaths

from .forked_commands import Output, Request, run_forked
from .hostile_sweeps import AXIS, CHOICES, COMMANDS, HOSTILE, METRIC, SWEEPS, WORDS, Place

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs a terminal")

# What rich sends: colours, the cursor of a live table, links never.
_OWN_SEQUENCES = re.compile(r"\x1b\[(?:(?:[0-9]|2[1-9]|[34][0-7]|[34]9|9[0-7])(?:;(?:[0-9]|[39][0-7]))*m|0?m|\?25[lh]|2K|\d*[AG])")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0"
    "\ufe00-\ufe0f\U000e0000-\U000e0fff]"
)
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def dangers(text: str) -> list[str]:
    """What in a text a terminal would obey or hide."""
    hidden = [each for each in text if each not in "\n\t" and unicodedata.category(each) in _HIDDEN]
    too_many_marks = re.findall("[\u0300-\u036f]{5,}", text)
    return sorted(map(ascii, {*hidden, *_INVISIBLE.findall(text), *too_many_marks}))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place.made_in(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def outputs(place: Place, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], tuple[Output, Output]]:
    """What each command prints on a terminal and into pipes, by its words."""
    words = [(name, *arguments) for name, each in place.cases().items() for arguments in each]
    folder = os.fspath(place.folder)
    requests = [Request(each, folder, is_terminal) for each in words for is_terminal in (True, False)]
    home = tmp_path_factory.mktemp("home")
    environment = os.environ | {"HOME": str(home), "XDG_CACHE_HOME": str(home), "BROWSER": "true", "TERM": "xterm"}
    done = run_forked(requests, environment=environment | {"PYTHONIOENCODING": "utf-8"})
    return dict(zip(words, zip(done[::2], done[1::2], strict=True), strict=True))


def test_every_command_is_tried_with_every_choice(place: Place) -> None:
    cases = place.cases()
    assert cases.keys() == COMMANDS.keys()
    for name, options in CHOICES.items():
        words = {word for case in cases[name] for word in case}
        assert {value for values in options.values() for value in values} <= words, name


def test_no_command_fails_by_a_hostile_text(outputs: dict[tuple[str, ...], tuple[Output, Output]]) -> None:
    broken = {
        words: (each.status, (each.out + each.err)[-500:])
        for words, both in outputs.items()
        for each in both
        if each.status not in (0, 1, 2, 130) or b"unexpected" in each.out + each.err or b"Traceback" in each.err
    }
    assert broken == {}
    shown = {words[0] for words, (_, in_pipe) in outputs.items() if in_pipe.status in (0, 1)}
    assert COMMANDS.keys() - shown <= {"demo", "duel", "tune"}, "a command that only refuses shows nothing"


def test_no_terminal_gets_a_control_or_hidden_character(outputs: dict[tuple[str, ...], tuple[Output, Output]]) -> None:
    found = {}
    for words, (on_terminal, in_pipe) in outputs.items():
        shown = _OWN_SEQUENCES.sub("", on_terminal.out.decode().replace("\r\n", "\n").replace("\r\x1b[2K", ""))
        texts = [shown, in_pipe.err.decode(), "" if _is_csv(words) else in_pipe.out.decode()]
        if faults := [dangers(text) for text in texts if dangers(text)]:
            found[words] = faults
    assert found == {}


def _is_csv(words: tuple[str, ...]) -> bool:
    return words[-2:] == ("--format", "csv")


def _csv_texts(place: Place, outputs: dict[tuple[str, ...], tuple[Output, Output]]) -> Iterator[tuple[str, str]]:
    for words, (_, in_pipe) in outputs.items():
        if _is_csv(words) and in_pipe.status == 0:
            yield " ".join(words), in_pipe.out.decode()
    for path in SweepPaths(place.folder / "outputs" / SWEEPS[0]).root.glob("*.csv"):
        yield path.name, path.read_bytes().decode()


def test_csv_gives_back_exactly_the_stored_texts(
    place: Place, outputs: dict[tuple[str, ...], tuple[Output, Output]]
) -> None:
    texts = dict(_csv_texts(place, outputs))
    assert {"results.csv", "epochs.csv", "comparison.csv"} < texts.keys() and len(texts) > 10
    for name, text in texts.items():
        heading, *rows = csv.reader(io.StringIO(text, newline=""))
        assert {len(row) for row in rows} <= {len(heading)}, name
        frame = pd.read_csv(io.StringIO(text, newline=""), dtype=str, keep_default_na=False)
        assert frame.values.tolist() == rows, name
        column = f"settings.{AXIS}"
        if column in heading:
            assert {row[heading.index(column)] for row in rows} <= {*HOSTILE, ""}, name
    heading, *rows = csv.reader(io.StringIO(texts["results.csv"], newline=""))
    assert {row[heading.index(f"settings.{AXIS}")] for row in rows} == set(HOSTILE)
    assert f"last_{METRIC}" in heading or METRIC in heading


def test_markdown_tables_have_whole_rows_and_nothing_but_text(
    place: Place, outputs: dict[tuple[str, ...], tuple[Output, Output]]
) -> None:
    texts = {
        words: in_pipe.out.decode()
        for words, (_, in_pipe) in outputs.items()
        if words[-1] in ("markdown", "github") and in_pipe.status == 0
    }
    root = SweepPaths(place.folder / "outputs" / SWEEPS[0]).root
    texts |= {(path.name,): path.read_text() for path in root.glob("*.md")}
    assert len(texts) > 10
    for words, text in texts.items():
        tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(text)
        kinds = {each.type for token in tokens for each in (token, *(token.children or ()))}
        own = {"strong_open", "strong_close", "html_block", "html_inline"} if words[-1] == "github" else set()
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
    outputs: dict[tuple[str, ...], tuple[Output, Output]],
) -> None:
    """Escaping for Markdown is undone by rendering it."""
    out = outputs["table", SWEEPS[0], "--format", "markdown"][1].out.decode()
    tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(out)
    cells = ["".join(part.content for part in each.children or ()) for each in tokens if each.type == "inline"]
    for text in HOSTILE[6:9]:
        assert text in cells


def test_latex_has_escaped_texts_in_whole_rows(outputs: dict[tuple[str, ...], tuple[Output, Output]]) -> None:
    texts = {
        words: each.out.decode()
        for words, (_, each) in outputs.items()
        if words[-2:] == ("--format", "latex") and each.status == 0
    }
    assert len(texts) > 5
    for words, text in texts.items():
        body = text[text.index(r"\begin{tabular}") :]
        layout, *rows = [line for line in body.splitlines() if not re.fullmatch(r"\\(\w+rule|end\{tabular\})", line)]
        columns = len(layout) - len(r"\begin{tabular}{}")
        assert all(row.endswith(r" \\") for row in rows), words
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} <= {columns}, words
        plain = re.sub(r"\\(text\w+|textbackslash)\{\}|\\[&%$#_{}]|\$\\pm\$|\{\}", "", "\n".join(rows).replace(r" \\", ""))
        assert not set(plain) & set("\\%$#_{}^~"), words


@pytest.mark.parametrize("shell", [("bash", "-c"), ("zsh", "-f", "-c")])
def test_a_printed_command_is_the_stored_one_in_a_shell(
    place: Place, outputs: dict[tuple[str, ...], tuple[Output, Output]], shell: tuple[str, ...]
) -> None:
    words = next(each for each in outputs if each[0] == "reproduce")
    line = outputs[words][1].out.decode().splitlines()[0]
    done = subprocess.run(
        [*shell, "printf '%s\\0' " + line], cwd=place.folder, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.decode().split("\0")[:-1] == ["runmanager", "run", *(word for word in WORDS if "\0" not in word)]


def test_the_report_and_the_figures_hold_no_control_character(place: Place) -> None:
    root = SweepPaths(place.folder / "outputs" / SWEEPS[0]).root
    paths: list[Path] = [*root.glob("*.html"), *root.glob("*.md"), *root.glob("*.json"), *root.glob("figures/*.svg")]
    assert {path.name for path in paths} > {"report.html", "results.html", "results.md", "comparison.md", "results.json"}
    found = {}
    for path in paths:
        text = path.read_text()
        if path.suffix == ".html":  # what a script copies is exact, between these marks
            text = re.sub(r"<(script|textarea|template)\b.*?</\1>", "", text, flags=re.DOTALL)
        if path.name not in ("results.json", "comparison.json", "sweep.json", "labels.json") and dangers(text):
            found[path.name] = dangers(text)
    assert found == {}
