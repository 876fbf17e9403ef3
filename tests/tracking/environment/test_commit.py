"""The commit of a program's folder, and why it is not known, from real repositories."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from runmanager.tracking.environment import program_code as commits
from runmanager.tracking.environment.program_code import COMMIT_VARIABLE, Commit, commit_of

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *IDENTITY, "-C", str(folder), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repository(folder: Path, *, name: bytes = b"train.py") -> str:
    """Make a repository with one commit, and return it."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("1")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No commit of a driver, no variables of git, and nobody's own settings."""
    for name in [COMMIT_VARIABLE, *(name for name in os.environ if name.startswith("GIT_"))]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))  # for the commands of the tests


def test_a_changed_file_whose_name_is_not_utf_8_is_a_change(tmp_path: Path) -> None:
    sha = repository(tmp_path / "own", name=b"caf\xe9.txt")
    git(tmp_path / "own", "config", "core.quotePath", "false")
    (tmp_path / "own" / os.fsdecode(b"caf\xe9.txt")).write_text("2")
    assert commit_of(tmp_path / "own") == (sha, False, None)


def test_the_variables_of_the_caller_choose_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sha = repository(tmp_path / "own")
    (tmp_path / "own" / "below").mkdir()
    other = tmp_path / "other"
    assert repository(other, name=b"other.py") != sha
    for name, value in {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git" / "index"),
        "GIT_CEILING_DIRECTORIES": str(tmp_path / "own"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git" / "objects"),
        "GIT_CONFIG_COUNT": "1",  # without its key
        "GIT_TRACE": "2",
    }.items():
        monkeypatch.setenv(name, value)
    assert commit_of(tmp_path / "own" / "below") == (sha, True, None)


def unborn(folder: Path) -> None:
    folder.mkdir()
    git(folder, "init", "--quiet")


def with_head(text: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        repository(folder)
        (folder / ".git" / "HEAD").write_text(text)

    return make


def with_lost_commit(folder: Path) -> None:
    repository(folder)
    (folder / ".git" / git(folder, "symbolic-ref", "HEAD")).write_text("1" * 40 + "\n")


def with_broken_settings(folder: Path) -> None:
    repository(folder)
    (folder / ".git" / "config").write_text("[core\n")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.mkdir, "no git repository"),
        (unborn, "its repository has no commit yet"),
        (with_head("ref: refs/heads/gone\n"), "its repository has no commit yet"),
        (with_head("nonsense"), "not a git repository (or any of the parent directories): .git"),
        (with_head("2" * 40 + "\n"), "the HEAD of its repository is broken: it names no commit"),
        (with_lost_commit, "the HEAD of its repository is broken: it names no commit"),
        (with_broken_settings, "bad config line 1 in file .git/config"),
    ],
    ids=["none", "unborn", "branch gone", "damaged HEAD", "lost HEAD", "lost branch", "settings"],
)
def test_why_there_is_no_commit(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    make(tmp_path / "own")
    assert commit_of(tmp_path / "own") == (None, None, why)


def test_a_repository_of_another_user_is_told_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(tmp_path / "own")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    commit, clean, why = commit_of(tmp_path / "own")
    assert (commit, clean) == (None, None) and why is not None and "dubious ownership" in why
    assert why.endswith(f"git config --global --add safe.directory {tmp_path / 'own'}")


def test_a_damaged_index_leaves_the_commit_known(tmp_path: Path) -> None:
    sha = repository(tmp_path / "own")
    (tmp_path / "own" / ".git" / "index").write_bytes(b"x")
    why = "git cannot compare the files with it: .git/index: index file smaller than expected"
    assert commit_of(tmp_path / "own") == (sha, None, why)


def test_worktrees_submodules_and_bare_repositories(tmp_path: Path) -> None:
    sha = repository(tmp_path / "own")
    git(tmp_path / "own", "worktree", "add", "--quiet", "--detach", str(tmp_path / "tree"))
    assert commit_of(tmp_path / "tree") == (sha, True, None)
    outer = repository(tmp_path / "outer")
    git(tmp_path / "outer", "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(tmp_path / "own"))
    assert commit_of(tmp_path / "outer") == (outer, False, None)
    assert commit_of(tmp_path / "outer" / "own") == (sha, True, None)
    git(tmp_path, "clone", "--quiet", "--bare", str(tmp_path / "own"), str(tmp_path / "bare"))
    commit, clean, why = commit_of(tmp_path / "bare")
    assert (commit, clean) == (sha, None) and "must be run in a work tree" in (why or "")


def test_git_takes_no_lock_and_runs_no_program_of_the_repository(tmp_path: Path) -> None:
    own = tmp_path / "own"
    sha = repository(own)
    spy = tmp_path / "spy"
    spy.write_text(f"#!/bin/sh\ntouch {tmp_path}/seen\n")
    spy.chmod(0o755)
    git(own, "config", "core.fsmonitor", str(spy))
    shutil.copy(spy, own / ".git" / "hooks" / "post-index-change")
    (own / "train.py").touch()  # its time has changed, so git would like to refresh its index
    index = (own / ".git" / "index").read_bytes()
    (own / ".git" / "index.lock").touch()
    assert commit_of(own) == (sha, True, None)
    assert (own / ".git" / "index").read_bytes() == index and not (tmp_path / "seen").exists()


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str | None) -> None:
    """Put a program in the place of git; None leaves none."""
    folder.mkdir()
    if script is not None:
        (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin" if script else str(folder))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, "git is not installed"),
        ("trap '' TERM INT; tail -f /dev/null", "git gave no answer in time"),
        ("exit 7", "git ended with status 7"),
        ("printf 'fatal: \\033[31m\\377' >&2; exit 1", "\\x1b[31m\ufffd"),
    ],
    ids=["none", "hangs", "silent", "hostile"],
)
def test_a_git_that_gives_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, why: str
) -> None:
    monkeypatch.setattr(commits, "_SECONDS", 0.5)
    (tmp_path / "own").mkdir()
    stand_in(tmp_path / "bin", monkeypatch, script)
    assert commit_of(tmp_path / "own") == (None, None, why)


def test_what_git_leaves_behind_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_SECONDS", 1.0)
    (tmp_path / "own").mkdir()
    left = tmp_path / "left"
    stand_in(tmp_path / "bin", monkeypatch, f"echo abc; tail -f /dev/null & echo $! >> {left}")
    try:
        assert commit_of(tmp_path / "own").commit == "abc"
    finally:
        for pid in left.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize(
    "commit",
    [
        *(Commit("abc", True), Commit("abc", False), Commit("abc", None, "an index: damaged"), Commit("abc", None)),
        *(Commit(None, None, "no git repository"), Commit(None)),
    ],
    ids=str,
)
def test_a_commit_is_handed_to_child_processes(commit: Commit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(COMMIT_VARIABLE, commit.as_text)
    assert commit_of(tmp_path) == commit


@pytest.mark.parametrize(("text", "known"), [("abc", ("abc", True)), ("abc-dirty", ("abc", False)), ("", (None, None))])
def test_the_text_of_a_commit_that_a_user_sets(text: str, known: tuple[str | None, bool | None]) -> None:
    assert Commit.from_text(text) == (*known, None)
