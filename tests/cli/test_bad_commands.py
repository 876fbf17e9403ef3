"""Tests of faulty command lines: status 2, one line a fault, no traceback, and nothing written."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from runmanager.records.files.paths import SweepPaths

from .bad_commands import BAD_COMMANDS, IN_PROCESSES, TRAIN
from .conftest import process_environment, process_words


@pytest.fixture
def folder(sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a sweep and programs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("COLUMNS", "200")
    current = Path.cwd()
    (current / "own.py").write_text("import torch\n\nclass Net(torch.nn.Linear):\n    pass\n")
    (current / "train.py").write_text(TRAIN)
    (current / "points.csv").write_text("lr,batch_size\n0.1,10\n")
    return current


def content(folder: Path) -> dict[str, bytes | None]:
    found = sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {str(path): path.read_bytes() if path.is_file() else None for path in found}


def complaints(status: int, out: str, err: str) -> list[str]:
    """What is wrong with the end of a faulty command."""
    lines = err.splitlines()
    wrong = [] if status == 2 else [f"status {status}"]
    if "Traceback" in out + err or "--debug shows where" in err:
        wrong.append("a traceback, or the offer of one")
    if not lines or any(not line.startswith("error: ") or len(line) > 700 for line in lines):
        wrong.append("another line than `error: …`")
    if any(ord(character) < 32 and character != "\n" for character in err):
        wrong.append("a control character")
    return [*wrong, repr(out + err)] if wrong else []


@pytest.mark.parametrize("words", BAD_COMMANDS, ids=lambda words: repr(" ".join(words))[1:-1])
def test_a_faulty_command_is_one_clear_line_and_leaves_nothing(
    command: Callable, folder: Path, words: Sequence[str]
) -> None:
    before = content(folder)
    variables, path = dict(os.environ), list(sys.path)
    done = command(*words)
    sys.path[:] = path
    assert complaints(done.status, done.out, done.err) == []
    assert content(folder) == before
    assert dict(os.environ) == variables


def test_faulty_commands_as_processes(folder: Path) -> None:
    before = content(folder)
    found = {}
    for words in IN_PROCESSES:
        done = subprocess.run(
            process_words(*words),
            env=process_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        found[words] = complaints(done.returncode, done.stdout, done.stderr)
    assert {words: wrong for words, wrong in found.items() if wrong} == {}
    assert content(folder) == before


def test_there_are_enough_of_them() -> None:
    assert len(set(BAD_COMMANDS)) >= 150 and len(set(IN_PROCESSES)) == 10
