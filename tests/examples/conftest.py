"""Running an example as a user does, and reading what it recorded as plain JSON."""

import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ..forked_python import start_forked

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True)
class ExampleRun:
    """What an example's run left: its folder, its record and its epochs."""

    folder: Path
    record: dict[str, Any]
    epochs: list[dict[str, Any]]
    printed: str

    def column(self, name: str) -> list[Any]:
        """The values of a field or a logged metric, an epoch each."""
        return [each.get(name, each.get("metrics", {}).get(name)) for each in self.epochs]


class Example:
    """One example: its module, for its data and networks, and its command."""

    def __init__(self, name: str, folder: Path) -> None:
        self.path, self.folder = EXAMPLES / f"{name}.py", folder
        self.module = _module(self.path)

    def run(self, *arguments: str) -> ExampleRun:
        """Run it in an empty folder."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = start_forked([str(self.path), *arguments], folder=self.folder, environment=environment).end()
        assert ended.returncode == 0, ended.stdout + ended.stderr
        (record,) = self.folder.glob("outputs/**/run.json")
        epochs = [json.loads(line) for line in (record.parent / "epochs.jsonl").read_text().splitlines()]
        return ExampleRun(record.parent, json.loads(record.read_text()), epochs, ended.stdout + ended.stderr)


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Example:
    """The example that the test names by its parameter."""
    return Example(request.param, tmp_path)
