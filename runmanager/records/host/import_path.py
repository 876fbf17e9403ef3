"""The current folder on Python's import path, and its modules that are named as one of the standard library."""

import os
import sys
from pathlib import Path

_LIBRARY = Path(os.__file__).parent
_STANDARD = (str(_LIBRARY), str(_LIBRARY / "lib-dynload"))


def search_current_folder() -> None:
    """Let imports find modules in the current folder: before installed packages, but after the standard library.

    Before the standard library, a file `random.py` would take its place in every package, as it does in a script.
    """
    try:
        here = str(Path.cwd())
    except FileNotFoundError:  # it was removed: no module is there, and a command says so
        return
    others = [entry for entry in sys.path if entry not in ("", here)]
    first = 1 + max((index for index, entry in enumerate(others) if entry in _STANDARD), default=-1)
    sys.path[:] = [*others[:first], here, *others[first:]]


def modules_like_standard(folder: Path) -> list[str]:
    """Return the modules of a folder, `NAME.py` or `NAME/`, that have the name of a standard one in use here."""
    names = sorted(sys.stdlib_module_names & sys.modules.keys())
    files = [f"{name}.py" for name in names if (folder / f"{name}.py").is_file()]
    return files + [f"{name}/" for name in names if (folder / name / "__init__.py").is_file()]
