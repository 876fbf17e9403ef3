"""A side of a duel: its commit in a worktree, its interpreter, and its environment variables."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runmanager.errors import UsageError
from runmanager.tracking.environment.commit import COMMIT_VARIABLE, GitError, call_git

__all__ = ["DuelSide", "checked_out"]

_SHORT = 10
_SECONDS, _CHECKOUT_SECONDS = 60.0, 600.0


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
