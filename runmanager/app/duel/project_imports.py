"""Where a side of a duel imports the project from: it must be its own worktree."""

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from runmanager.app.duel.duel_side import DuelSide
from runmanager.errors import UsageError

__all__ = ["files_outside", "files_within", "find_outside", "refusal"]

_INSTALLED = ("site-packages", "dist-packages")
_NOT_THE_PROJECT = {"benchmarks", "conftest", "docs", "examples", "noxfile", "scripts", "setup", "test", "tests"}
_LOCATE = """
import importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        continue
    if spec is not None:
        places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        found[name] = [place for place in places if place]
print(json.dumps(found))
"""
_MAX_SECONDS = 120


def find_outside(side: DuelSide, script: str | None = None) -> list[str]:
    """Return the files, outside the side's worktree, that its interpreter would import the project's modules from.

    Nothing of the project runs. `script` is the program whose folder comes first on its path. Raises `UsageError` where
    the interpreter does not start or lacks this package.
    """
    names = sorted({*_modules_of(side), "runmanager"})
    variables = side.environment()
    if script is not None:
        first = str((side.folder / script).resolve().parent)
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [first, variables.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(
            [side.python, "-c", _LOCATE, *names],
            cwd=side.folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=_MAX_SECONDS,
        )
        found: dict[str, list[str]] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"The interpreter of the {side.role} must start, got {side.python}: {error}.") from error
    if "runmanager" not in found:
        raise UsageError(f"The environment of the {side.role} must have runmanager installed, got {side.python}.")
    return files_outside(side, [place for places in found.values() for place in places])


def files_within(side: DuelSide, files: Iterable[str]) -> list[str]:
    """Return the names of the files below the side's worktree, relative to it."""
    if side.worktree is None:
        return []
    paths = (Path(file) for file in files)
    return sorted(str(path.relative_to(side.worktree)) for path in paths if path.is_relative_to(side.worktree))


def files_outside(side: DuelSide, files: Iterable[str]) -> list[str]:
    """Return the files that belong to the project and lie outside the side's worktree.

    They are those of the caller's checkout, and installed copies of modules that the worktree has.
    """
    if side.worktree is None or side.repository is None:
        return []
    own = _modules_of(side)
    found = []
    for file in files:
        path = Path(file)
        if path.is_relative_to(side.worktree):
            continue
        parts = path.parts
        at = next((index for index, part in enumerate(parts) if part in _INSTALLED), None)
        if at is not None:
            is_copy = len(parts) > at + 1 and parts[at + 1].removesuffix(".py") in own
            found += [file] if is_copy else []
        elif path.is_relative_to(side.repository):
            found.append(file)
    return found


def refusal(side: DuelSide, files: Sequence[str]) -> str:
    """Return the error for a side that imports the project from `files`."""
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return (
        f"The {side.role} must import the project from its own worktree, got {files[0]}{more}; start the duel where "
        "the project's modules are found in the current folder, or put that folder on PYTHONPATH."
    )


def _modules_of(side: DuelSide) -> set[str]:
    """Return the top-level modules of the side's worktree: of its root, of `src`, and of the current folder."""
    if side.worktree is None:
        return set()
    names: set[str] = set()
    for folder in {side.worktree, side.worktree / "src", side.folder}:
        if not folder.is_dir():
            continue
        for path in folder.iterdir():
            if path.suffix == ".py" or (path / "__init__.py").exists():
                names.add(path.stem)
    return {name for name in names if name.isidentifier() and name not in _NOT_THE_PROJECT and name != "__init__"}
