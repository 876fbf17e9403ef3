"""Huge pages: memory is unchanged, in the process and in its forks."""

import subprocess
import sys

import pytest

COLLAPSE = """
import os
from runmanager.launching.local.forkserver import collapse_heap

blocks = [bytes([number % 256]) * 1000 for number in range(50_000)]
collapse_heap()
assert all(each == bytes([number % 256]) * 1000 for number, each in enumerate(blocks))
pid = os.fork()
if pid == 0:
    blocks[7] = b"changed in the fork alone"
    os._exit(0 if len(blocks) == 50_000 and blocks[9] == bytes([9]) * 1000 else 1)
assert os.waitpid(pid, 0)[1] == 0
assert blocks[7] == bytes([7]) * 1000
"""


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages are a feature of Linux")
def test_the_content_of_the_heap_does_not_change() -> None:
    done = subprocess.run([sys.executable, "-c", COLLAPSE], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
