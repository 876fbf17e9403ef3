"""A side of a duel: its commit in a worktree, its interpreter, its variables, and where it imports the project from."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runmanager.errors import UsageError
from runmanager.tracking.environment.program_code import COMMIT_VARIABLE, GitError, call_git

_SHORT = 10
_SECONDS, _CHECKOUT_SECONDS = 60.0, 600.0
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


@dataclass(frozen=True)
class DuelSide:
    """A side: `role` (`baseline`, `candidate`), interpreter, current folder, and the commit that is checked out there.

    `worktree` is None for a side that runs in the caller's own folder; else it stands for the caller's `repository`.
    """

    role: str
    python: str
    folder: Path
    revision: str | None = None
    commit: str | None = None
    worktree: Path | None = None
    repository: Path | None = None

    @property
    def description(self) -> str:
        commit = f"{self.revision} ({(self.commit or '')[:_SHORT]})" if self.revision else "the current folder"
        return f"{self.role}: {commit}" + ("" if self.python == sys.executable else f" with {self.python}")

    def environment(self) -> dict[str, str]:
        """Return the variables of the side's processes: what leads into the repository leads into the worktree."""
        variables = dict(os.environ)
        if self.worktree is None or self.repository is None:
            return variables
        variables.pop(COMMIT_VARIABLE, None)
        entries = variables.get("PYTHONPATH", "").split(os.pathsep)
        if any(entries):
            variables["PYTHONPATH"] = os.pathsep.join(self._moved(entry) for entry in entries if entry)
        # Data is not part of a commit: the caller's is used, wherever its path begins.
        variables["RUNMANAGER_DATA"] = str(Path(variables.get("RUNMANAGER_DATA", "data")).absolute())
        return variables

    def _moved(self, entry: str) -> str:
        assert self.worktree is not None and self.repository is not None
        path = Path(entry).absolute()
        return str(self.worktree / path.relative_to(self.repository)) if path.is_relative_to(self.repository) else entry


def _repository_of(folder: Path) -> Path:
    """Return the top folder of the Git repository that `folder` is in. Raises `UsageError` where it is in none."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        raise UsageError(f"A duel of commits must start in a Git repository, got {folder}.")
    return Path(top)


@contextlib.contextmanager
def checked_out(revisions: Sequence[str | None], pythons: Sequence[str]) -> Iterator[list[DuelSide]]:
    """Check out the revisions in worktrees of a temporary folder, which is removed after; yield both sides.

    A side without a revision runs in the current folder. Raises `UsageError` for a revision that does not exist.
    """
    here = Path.cwd()
    roles = ("baseline", "candidate")
    if not any(revisions):
        yield [DuelSide(role, python, here) for role, python in zip(roles, pythons, strict=True)]
        return
    top = _repository_of(here)
    commits = [_commit_of(top, revision) for revision in revisions]
    home = Path(tempfile.mkdtemp(prefix="runmanager-duel-")).resolve()
    trees = [home / role for role in roles]
    try:
        for tree, commit in zip(trees, commits, strict=True):
            _add_worktree(top, tree, commit)
        yield [
            DuelSide(role, python, _same_place(tree, here, top), revision, commit, tree, top)
            for role, python, revision, commit, tree in zip(roles, pythons, revisions, commits, trees, strict=True)
        ]
    finally:
        for tree in trees:
            _git(top, "worktree", "remove", "--force", str(tree))
        shutil.rmtree(home, ignore_errors=True)
        _git(top, "worktree", "prune")


def _commit_of(top: Path, revision: str | None) -> str:
    commit = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if not revision or commit is None:
        raise UsageError(f"A revision of a duel must be a commit of {top}, got {revision!r}.")
    return commit


def _add_worktree(top: Path, tree: Path, commit: str) -> None:
    until = time.monotonic() + _CHECKOUT_SECONDS
    try:
        call_git(top, "worktree", "add", "--detach", "--quiet", str(tree), commit, until=until)
    except GitError as error:
        raise UsageError(f"Commit {commit[:_SHORT]} must be checked out for the duel, got: {error}.") from None


def _same_place(tree: Path, here: Path, top: Path) -> Path:
    """Return the folder of a worktree that corresponds to the current one. Raises `UsageError` where it lacks it."""
    folder = tree / here.resolve().relative_to(top.resolve())
    if not folder.is_dir():
        raise UsageError(f"Both commits of a duel must have the current folder, got none in {tree.name}'s.")
    return folder


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what Git prints, None where it fails."""
    with contextlib.suppress(GitError):
        return call_git(folder, *arguments, until=time.monotonic() + _SECONDS)
    return None


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
