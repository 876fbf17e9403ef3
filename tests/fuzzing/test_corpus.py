"""What the fuzzers found stays mended."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_finding_of_the_fuzzers_breaks_a_promise_again() -> None:
    # In a process of its own, which may take little memory.
    command = [sys.executable, "-m", "tests.fuzzing.replay"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "parsers, 0 inputs" in done.stdout
