"""What each run's process, and each Hydra application, imports to know the options of a sweep."""

import subprocess
import sys

import pytest

CODE = """
import sys
import runmanager.app.request.{module}
print([name for name in {heavy} if name in sys.modules])
"""


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("grid_sweeper_options", ("hydra", "rich", "torch", "typer")),
        ("sweep_request", ("hydra", "rich", "torch", "typer", "msgspec", "omegaconf")),
    ],
)
def test_options_import_nothing_slow(module: str, heavy: tuple[str, ...]) -> None:
    code = CODE.format(module=module, heavy=heavy)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
