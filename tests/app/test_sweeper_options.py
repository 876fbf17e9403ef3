"""Tests of what each run's process imports to read its configuration."""

import subprocess
import sys

CODE = """
import sys
import runmanager.app.sweeper_options
print([name for name in ("hydra", "rich", "torch", "runmanager.app.driver.sweeper") if name in sys.modules])
"""


def test_sweeper_options_import_nothing_slow() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
