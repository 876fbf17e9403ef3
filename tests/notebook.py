"""Execute the example notebook in a real kernel, for its test and to update its outputs.

`python -m tests.notebook` executes docs/example.ipynb in an empty folder and stores the outputs in it.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbclient import NotebookClient

__all__ = ["EXAMPLE", "execute_example", "kernel_environment"]

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "docs" / "example.ipynb"
_CELL_SECONDS = 300
_KEPT_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@contextmanager
def kernel_environment(folder: Path) -> Iterator[None]:
    """Set the environment of a kernel: this checkout, without the user's settings, history or kernels."""
    variables = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
    variables |= {
        "JUPYTER_RUNTIME_DIR": str(folder),
        "JUPYTER_DATA_DIR": str(folder),
        "JUPYTER_CONFIG_DIR": str(folder),
    }
    before = {name: os.environ.get(name) for name in (*variables, "MPLBACKEND")}
    os.environ.update(variables)
    os.environ.pop("MPLBACKEND", None)  # the kernel's backend shows figures
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def execute_example(folder: Path) -> nbformat.NotebookNode:
    """Execute the example in `folder` and return it with its outputs. Raises `CellExecutionError` if a cell raises."""
    notebook = nbformat.read(EXAMPLE, as_version=4)
    settings = folder / "settings"
    settings.mkdir()
    with kernel_environment(settings):
        NotebookClient(
            notebook,
            timeout=_CELL_SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
            record_timing=False,
        ).execute()
    return notebook


def main() -> None:
    """Update the stored outputs, without metadata of this machine and day."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = execute_example(Path(folder))
    notebook.metadata = nbformat.from_dict(_KEPT_METADATA)
    nbformat.validate(notebook)
    nbformat.write(notebook, EXAMPLE)


if __name__ == "__main__":
    main()
