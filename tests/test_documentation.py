"""Tests of the documentation: links resolve, and code blocks and commands run."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .forked_python import start_forked

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])

RUN_MARK = "<!-- run -->"
NOT_RUN_MARK = re.compile(r"<!-- not run: .+ -->")
"""Marks a Python block that cannot run here, with the reason."""

FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,})(?P<language>[\w+-]*)[^\n]*\n(?P<body>.*?)^(?P=fence)\s*$", re.M | re.S)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<inline>[^)\s]+)[^)]*\)|^\[[^\]]+\]:\s*(?P<reference>\S+)", re.M)
HEADING = re.compile(r"^#+\s+(.+?)\s*$", re.M)
TIME_LIMIT_SECONDS = 240


@dataclass(frozen=True)
class Block:
    """A fenced block with the line before it."""

    document: Path
    line: int
    language: str
    body: str
    mark: str

    @property
    def is_runnable(self) -> bool:
        if self.language in ("python", "py"):
            return not NOT_RUN_MARK.fullmatch(self.mark)
        return self.mark == RUN_MARK

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"


def blocks(document: Path, text: str) -> Iterator[Block]:
    for match in FENCE.finditer(text):
        before = text[: match.start()].rstrip().rpartition("\n")[2].strip()
        line = text.count("\n", 0, match.start()) + 1
        yield Block(document, line, match["language"], match["body"], before)


def commands(block: Block) -> list[list[str]]:
    """Return the commands of a block: lines after `$ ` in console blocks, all lines except comments in others."""
    lines = block.body.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    words = [shlex.split(line, comments=True) for line in lines]
    return [command for command in words if command]


def broken_links(document: Path, text: str) -> list[str]:
    prose = FENCE.sub("", text)
    targets = [match["inline"] or match["reference"] for match in LINK.finditer(prose)]
    return [target for target in targets if "://" not in target and not resolves(document, target)]


def resolves(document: Path, target: str) -> bool:
    if target.startswith("mailto:"):
        return True
    name, _, anchor = target.partition("#")
    file = (document.parent / name).resolve() if name else document
    if not file.exists():
        return False
    return not anchor or file.suffix != ".md" or anchor in anchors(file.read_text())


def anchors(text: str) -> set[str]:
    """Return the headings as link anchors: lower case, hyphens for spaces, without other punctuation."""
    headings = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def process_args(words: list[str]) -> list[str]:
    """Return the arguments that run a documented command with this interpreter, regardless of PATH."""
    if words[0] == "runmanager":
        return [sys.executable, "-c", "from runmanager.cli.main import main; main()", *words[1:]]
    assert words[:3] == ["python", "-m", "runmanager"], f"a block marked to run may only contain our commands: {words}"
    return [sys.executable, *words[1:]]


def run(words: list[str], folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"


RUNNABLE = [block for document in DOCUMENTS for block in blocks(document, document.read_text()) if block.is_runnable]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """One folder per document, so that later blocks can read what earlier blocks wrote."""
    return {document: tmp_path_factory.mktemp(document.stem) for document in DOCUMENTS}


@pytest.mark.parametrize("block", RUNNABLE, ids=str)
def test_block_runs(block: Block, folders: dict[Path, Path]) -> None:
    folder = folders[block.document]
    if block.language in ("python", "py"):
        script = folder / f"line_{block.line}.py"
        script.write_text(block.body)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = start_forked([script.name], folder=folder, environment=environment).end(TIME_LIMIT_SECONDS)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return
    found = commands(block)
    assert found, f"{block} is marked to run but contains no command"
    for words in found:
        run(process_args(words), folder)


def test_readme_shows_code_and_commands_that_are_run() -> None:
    kinds = {block.language for block in RUNNABLE if block.document == ROOT / "README.md"}
    assert "python" in kinds, "the README must show the library in a ```python block"
    assert kinds & {"console", "bash"}, f"the README must show a command in a block after {RUN_MARK}"


def test_readme_shows_what_its_commands_print(folders: dict[Path, Path]) -> None:
    """All but the numbers; the commands have run in the folder, unless this test is run alone."""
    page = runpy.run_path(str(ROOT / "docs" / "readme_output.py"))
    readme = ROOT / "README.md"
    text, folder = readme.read_text(), folders[readme]
    if not (folder / "outputs" / "first").exists():
        page["run_commands"](text, folder)
    shown = page["outputs"](text)
    assert shown, "the README must show what a command prints"
    for command, output in shown.items():
        printed = page["output_of"](command, folder)
        assert page["shape"](printed) == page["shape"](output), f"make readme-output updates what {command} prints"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_resolve(document: Path) -> None:
    assert broken_links(document, document.read_text()) == []


SAMPLE = """
# What's new, and old

[good](#whats-new-and-old) [also](sample.md) [far](https://example.org/x) ![gone](gone.png) [lost](#nowhere)
[ref]: missing.md

```text
[not a link](nothing.md)
```

<!-- run -->
```console
$ runmanager table \\
    first
its output
$ runmanager compare first  # a remark
```

<!-- not run: needs a GPU -->
```python
raise SystemExit(1)
```

```python
print("one")
```
"""


def test_links_blocks_and_commands_are_found(tmp_path: Path) -> None:
    document = tmp_path / "sample.md"
    document.write_text(SAMPLE)
    assert broken_links(document, SAMPLE) == ["gone.png", "#nowhere", "missing.md"]
    runnable = [block for block in blocks(document, SAMPLE) if block.is_runnable]
    assert [block.language for block in runnable] == ["console", "python"]
    assert commands(runnable[0]) == [["runmanager", "table", "first"], ["runmanager", "compare", "first"]]
    assert runnable[1].body == 'print("one")\n'
