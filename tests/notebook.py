"""The example notebook, carried out by a real kernel: for its test, and to write its outputs anew.

`python -m tests.notebook` runs docs/example.ipynb in an empty folder and stores what came out in it.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbclient import NotebookClient

__all__ = ["EXAMPLE", "executed", "kernel_environment"]

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "docs" / "example.ipynb"
_CELL_SECONDS = 300
_KEPT_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@contextmanager
def kernel_environment(folder: Path) -> Iterator[None]:
    """What a kernel finds: this checkout, and no settings, history or kernels of the user's."""
    wanted = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}
    wanted |= {"JUPYTER_RUNTIME_DIR": str(folder), "JUPYTER_DATA_DIR": str(folder), "JUPYTER_CONFIG_DIR": str(folder)}
    before = {name: os.environ.get(name) for name in (*wanted, "MPLBACKEND")}
    os.environ.update(wanted)
    os.environ.pop("MPLBACKEND", None)  # the kernel's own is the one that shows figures
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def executed(folder: Path) -> nbformat.NotebookNode:
    """The example with the outputs of its execution in `folder`. Raises `CellExecutionError` where a cell raises."""
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
    """Write the outputs anew; what is of this machine and this day alone stays out of the file."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(Path(folder))
    notebook.metadata = nbformat.from_dict(_KEPT_METADATA)
    nbformat.validate(notebook)
    nbformat.write(notebook, EXAMPLE)


if __name__ == "__main__":
    main()
