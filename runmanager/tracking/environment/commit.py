"""The git commit of a program's code, and why it is not known. Nothing that git does ends or delays a run."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from runmanager.text import first_line, printable
from runmanager.tracking.environment.import_scanner import is_installed

COMMIT_VARIABLE = "RUNMANAGER_COMMIT"
"""Environment variable that replaces the calls of git, as `Commit.as_text` has it."""

_SECONDS = 5.0
"""How long all calls for a commit may take together; a repository that needs longer has a commit that is not known."""

_DIRTY, _UNCHECKED = "-dirty", "-unchecked"
_FATAL = "fatal: "

_KEPT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_TEST_ASSUME_DIFFERENT_OWNER")
"""Variables of git that choose no repository: where the user's settings are, and how git tests its own refusal."""

_WITHOUT_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")


class GitError(Exception):
    """Git gave no answer; the message says why, in one line."""


class Commit(NamedTuple):
    """A commit, whether the tracked files are as it has them, and why either is not known; None for what is not."""

    commit: str | None
    commit_clean: bool | None = None
    commit_unknown: str | None = None

    @property
    def as_text(self) -> str:
        """`<sha>`, `<sha>-dirty` or `<sha>-unchecked`, empty for no commit; then a space and what is not known."""
        state = {True: "", False: _DIRTY, None: _UNCHECKED if self.commit else ""}[self.commit_clean]
        return f"{self.commit or ''}{state} {self.commit_unknown or ''}".rstrip()

    @classmethod
    def from_text(cls, text: str) -> "Commit":
        """Read what `as_text` has written."""
        word, _, unknown = text.partition(" ")
        is_clean = None if word.endswith(_UNCHECKED) or not word else not word.endswith(_DIRTY)
        return cls(word.removesuffix(_DIRTY).removesuffix(_UNCHECKED) or None, is_clean, unknown or None)


def program_folder() -> str | None:
    """Return the folder that the names of the program's files are relative to; None without a script."""
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)
    if script is None:
        return None
    is_elsewhere = getattr(main, "__spec__", None) or is_installed(script)  # `python -m`, or an installed command
    return str(Path.cwd() if is_elsewhere else Path(script).resolve().parent)


def commit_of(folder: Path | None = None) -> Commit:
    """Return the commit of a folder (default: the program's own), whatever repository the caller's variables name.

    Calls git once a process, or not if the sweep's driver has set `RUNMANAGER_COMMIT`.
    """
    inherited = os.environ.get(COMMIT_VARIABLE)
    if inherited is not None:
        return Commit.from_text(inherited)
    return _read_commit(folder or Path(program_folder() or Path.cwd()))


@cache
def _read_commit(folder: Path) -> Commit:
    until = time.monotonic() + _SECONDS
    try:
        commit = call_git(folder, "rev-parse", "--verify", "HEAD^{commit}", until=until)
    except GitError as error:
        return Commit(None, None, _why_no_commit(folder, str(error), until))
    try:
        changes = call_git(folder, "status", "--porcelain", "--untracked-files=no", until=until)
    except GitError as error:
        return Commit(commit, None, f"git cannot compare the files with it: {error}")
    return Commit(commit, changes == "")


def _why_no_commit(folder: Path, said: str, until: float) -> str:
    if "dubious ownership" in said:
        owner = "its repository belongs to another user, so git refuses it (dubious ownership)"
        return f"{owner}; git config --global --add safe.directory {printable(str(folder))}"
    if "not a git repository" in said and not any(os.path.lexists(each / ".git") for each in (folder, *folder.parents)):
        return "no git repository"
    if "single revision" not in said:
        return said
    with suppress(GitError):
        branch = call_git(folder, "symbolic-ref", "--quiet", "HEAD", until=until)
        if not call_git(folder, "for-each-ref", branch, until=until):
            return "its repository has no commit yet"
    return "the HEAD of its repository is broken: it names no commit"


def call_git(folder: Path, *arguments: str, until: float) -> str:
    """Return what git prints of the repository of `folder`, up to the moment `until` of the monotonic clock.

    Git takes no lock that it can do without, asks nothing and runs no hook. What is not UTF-8 is escaped as in names of
    files. Raises `GitError`.
    """
    variables = {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith("GIT_")}
    variables |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        git = subprocess.Popen(
            ["git", *_WITHOUT_PROGRAMS, "-C", str(folder), *arguments],
            cwd=os.sep,  # the current folder may be gone
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that what it has started ends with it
        )
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    except OSError as error:
        raise GitError(f"git cannot be run: {error.strerror}") from None
    try:
        output, errors = git.communicate(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired as so_far:
        if git.poll() is None:
            raise GitError("git gave no answer in time") from None
        output, errors = so_far.output or b"", so_far.stderr or b""  # what it has left behind holds the pipes open
    finally:
        _end(git)
    if git.returncode:
        lines = errors.decode(errors="replace").splitlines()
        said = next((line for line in lines if line.startswith(_FATAL)), first_line("\n".join(lines)))
        raise GitError(printable(said.removeprefix(_FATAL)) or f"git ended with status {git.returncode}")
    return os.fsdecode(output).strip()


def _end(git: "subprocess.Popen[bytes]") -> None:
    """End a process of git that has not ended, without waiting for one that the kernel does not let go."""
    if git.poll() is None:
        with suppress(OSError):
            os.killpg(git.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        git.wait(timeout=1)
    for stream in (git.stdout, git.stderr):
        if stream is not None:
            stream.close()
