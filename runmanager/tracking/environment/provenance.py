"""What code a run was made with: commit, library versions, command. Loads no torch."""

import importlib.metadata
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

__all__ = [
    "COMMAND_VARIABLE",
    "COMMIT_VARIABLE",
    "DRIVEN_VARIABLE",
    "command_line",
    "git_commit",
    "library_versions",
    "provenance_for_children",
]

COMMIT_VARIABLE = "RUNMANAGER_COMMIT"
"""Environment variable that names the commit, `<sha>` or `<sha>-dirty`, where git need not or cannot be asked."""

COMMAND_VARIABLE = "RUNMANAGER_COMMAND"
"""Environment variable with the command line that a sweep's driver was given."""

DRIVEN_VARIABLE = "RUNMANAGER_DRIVEN"
"""Environment variable, set by a driver that keeps sweep.json and the tables: its runs leave both to it."""

_LIBRARIES = ("torch", "torchvision", "numpy", "tensorboard", "hydra-core", "omegaconf", "torch-runmanager")


def command_line() -> tuple[str, ...]:
    """The words of the command that this run belongs to, bytes that are no UTF-8 written out: files hold no others."""
    given = os.environ.get(COMMAND_VARIABLE)
    words = shlex.split(given) if given is not None else sys.argv
    return tuple(word.encode(errors="backslashreplace").decode() for word in words)


@contextmanager
def provenance_for_children(command: Sequence[str]) -> Iterator[None]:
    """Keep command and commit in the environment meanwhile, so that no run of this sweep has to ask again."""
    commit, clean = git_commit(Path.cwd())
    said = {COMMAND_VARIABLE: shlex.join(command)}
    said[COMMIT_VARIABLE] = (commit or "") + ("-dirty" if clean is False else "")
    earlier = {name: os.environ.get(name) for name in (*said, DRIVEN_VARIABLE)}
    os.environ.update(said)
    try:
        yield
    finally:
        for name, value in earlier.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@cache
def git_commit(folder: Path) -> tuple[str | None, bool | None]:
    """The git commit of `folder` and whether its tracked files are as committed; None where there is none.

    Asked once a process: a sweep's driver asks, and hands the answer to its runs in `RUNMANAGER_COMMIT`.
    """
    given = os.environ.get(COMMIT_VARIABLE)
    if given is not None:
        return (given.removesuffix("-dirty") or None), (not given.endswith("-dirty") if given else None)
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return commit, None if changes is None else changes == ""


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # fixed words, no shell
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def library_versions() -> dict[str, str]:
    """The installed versions of what a run rests on."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
