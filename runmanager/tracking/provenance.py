"""What code a run was made with: commit, library versions, command. Loads no torch."""

import importlib.metadata
import os
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

__all__ = ["COMMAND_VARIABLE", "COMMIT_VARIABLE", "command_line", "commit_of", "library_versions", "say_to_children"]

COMMIT_VARIABLE = "RUNMANAGER_COMMIT"
"""Environment variable that names the commit, `<sha>` or `<sha>-dirty`, where git need not or cannot be asked."""

COMMAND_VARIABLE = "RUNMANAGER_COMMAND"
"""Environment variable with the command line that a sweep's driver was given."""

_LIBRARIES = ("torch", "torchvision", "numpy", "tensorboard", "hydra-core", "omegaconf", "torch-runmanager")


def command_line() -> tuple[str, ...]:
    """The words of the command that this run belongs to."""
    given = os.environ.get(COMMAND_VARIABLE)
    return tuple(shlex.split(given)) if given is not None else tuple(sys.argv)


def say_to_children(command: tuple[str, ...]) -> None:
    """Put command and commit into the environment, so that no run of this sweep has to ask again."""
    os.environ[COMMAND_VARIABLE] = shlex.join(command)
    commit, clean = commit_of(Path.cwd())
    os.environ[COMMIT_VARIABLE] = (commit or "") + ("-dirty" if clean is False else "")


@cache
def commit_of(folder: Path) -> tuple[str | None, bool | None]:
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
