"""Scripts as files, and commands on them as real processes."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ....processes import wait_for_output

ROOT = Path(__file__).resolve().parents[4]
MAIN = "import sys\nfrom runmanager.cli.main import run_command\nsys.exit(run_command(sys.argv[1:]))"
VARIABLES = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "240", "PYTHONPATH": str(ROOT)}


@dataclass(frozen=True)
class Done:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str


class Folder:
    """A user's folder: its scripts, and the commands given there."""

    def __init__(self, path: Path, mortal: Callable[..., subprocess.Popen[str]]) -> None:
        self.path = path
        self._mortal = mortal

    def write(self, name: str, source: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
        return file

    def start(self, *words: str, main: str = MAIN, **variables: str) -> subprocess.Popen[str]:
        """Start a `runmanager` command as a process; `main` is what that runs."""
        process = subprocess.Popen(
            [sys.executable, "-c", main, *words],
            cwd=self.path,
            env={**os.environ, **VARIABLES, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self._mortal(process)

    def run(self, *words: str, **variables: str) -> Done:
        """Run a `runmanager` command to its end."""
        process = self.start(*words, **variables)
        out, err = wait_for_output(process)
        return Done(process.returncode, out, err)


@pytest.fixture
def folder(tmp_path: Path, mortal: Callable[..., subprocess.Popen[str]]) -> Folder:
    return Folder(tmp_path, mortal)
