"""A process whose heap has been put into huge pages, and the server that does so where it is to fork often."""

import subprocess
import sys

import pytest

COLLAPSE = """
import os
from runmanager.launching.local.huge_pages import collapse_heap

kept = [bytes([number % 256]) * 1000 for number in range(50_000)]
collapse_heap()
assert all(each == bytes([number % 256]) * 1000 for number, each in enumerate(kept))
pid = os.fork()
if pid == 0:
    kept[7] = b"changed in the fork alone"
    os._exit(0 if len(kept) == 50_000 and kept[9] == bytes([9]) * 1000 else 1)
assert os.waitpid(pid, 0)[1] == 0
assert kept[7] == bytes([7]) * 1000
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's huge pages are Linux's")
def test_nothing_of_what_the_heap_holds_changes() -> None:
    done = subprocess.run([sys.executable, "-c", COLLAPSE], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
