"""Every command with `--format json` prints one document, valid by its schema; a program can go by these alone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runmanager.cli.commands.schema import SchemaKind

_ROOT = Path(__file__).parents[2]
_SCRIPT = """
import argparse, random
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int, default=0)
given = parser.parse_args()
noise = random.Random(given.seed * 7 + given.lr)
for epoch in range(3):
    print(f"epoch {epoch} val_loss {given.lr + noise.gauss(0, 0.02) + 1 / (epoch + 1):.4f}")
"""
_COMMANDS: dict[SchemaKind, tuple[str, ...]] = {
    SchemaKind.TABLE: ("first",),
    SchemaKind.COMPARE: ("first", "--axis", "lr", "--metric", "val_loss"),
    SchemaKind.BEST: ("first",),
    SchemaKind.LS: (),
    SchemaKind.SHOW: ("first/lr=0.1,seed=0",),
    SchemaKind.DIFF: ("first/lr=0.1,seed=0", "first/lr=0.2,seed=0"),
    SchemaKind.SCALARS: ("first",),
    SchemaKind.WATCH: ("first", "--once"),
    SchemaKind.DOCTOR: (),
}


def _run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("driven")
    (made / "train.py").write_text(_SCRIPT)
    words = ("sweep", "--name", "first", "--quiet", "train.py", "lr=0.1,0.2", "seed=0,1,2")
    assert _run(made, "-m", "runmanager", *words).returncode == 0
    return made


@pytest.mark.parametrize("kind", _COMMANDS)
def test_a_document_is_valid_by_its_schema(folder: Path, kind: SchemaKind) -> None:
    done = _run(folder, "-m", "runmanager", kind, *_COMMANDS[kind], "--format", "json")
    assert done.returncode == 0, done.stderr
    document: Any = json.loads(done.stdout)  # and nothing beside it
    schema = json.loads(_run(folder, "-m", "runmanager", "schema", kind).stdout)
    jsonschema.Draft202012Validator(schema).validate(document)
    assert document and _known_names(document, schema), "the schema describes what the document has"


def _known_names(document: Any, schema: dict[str, Any]) -> bool:
    """Whether the schema describes names of the document, or of its rows."""
    described = schema.get("items", schema)
    properties = schema["$defs"][described["$ref"].rpartition("/")[2]]["properties"]
    return all(len(set(each) & set(properties)) > 2 for each in (document if "items" in schema else [document]))


def test_a_sweep_that_goes_on_has_no_document(folder: Path) -> None:
    done = _run(folder, "-m", "runmanager", "watch", "first", "--format", "json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--once" in done.stderr


def test_a_program_drives_a_sweep_to_its_answer(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    done = _run(tmp_path, str(_ROOT / "examples" / "drive_a_sweep.py"), "train.py", "lr=0.1,0.11,0.3")
    assert done.returncode == 0, done.stderr
    answer, summary = done.stdout.splitlines()[-2:]
    found = json.loads(answer)
    assert found["settings"]["lr"] in (0.1, 0.11) and found["seeds"] >= 3
    assert summary.startswith(f"{3 * found['seeds']} cells; ")
