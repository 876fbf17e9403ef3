"""The code of a program: the source files that it imports, and its git commit, or why that is not known.

The scanner reads text, and imports and executes nothing. It follows user files only: those below given folders that are
not installed. It misses `import_module` with a name computed at run time. Nothing that git does ends or delays a run.
"""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

from runmanager.text import first_line, printable

_SUFFIXES = (*EXTENSION_SUFFIXES, ".py")  # in the order of Python's search
_INSTALL_FOLDERS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_IGNORED = re.compile(r"#.*|\\\r?\n")  # comments and line continuations
_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*"
    r"(?:from[ \t]*(?P<origin>\.*[\w.]*)[ \t]*import[ \t]*(?P<names>\([^)]*\)|[^\n;]*)"
    r"|import[ \t]+(?P<modules>[^\n;]*))",
    re.MULTILINE,
)


class _Module(NamedTuple):
    """Location of a module: its file, None for a namespace package, and the folders of a package's modules."""

    file: str | None
    folders: tuple[str, ...] = ()


class ImportScanner:
    """Collects in `files` the user files that scripts and modules import. Modules are searched in `folders` first."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.files: set[str] = set()
        self._folders = [*folders]
        self._search = [*self._folders, *(entry or str(Path.cwd()) for entry in sys.path)]
        self._found: dict[str, _Module | None] = {}
        self._visited: set[str] = set()

    def add_script(self, file: str, package: str) -> None:
        """Add a script that runs as a module of `package`, and what it imports."""
        self.add_file(file)
        self._add_modules(_imports(file, package))

    def add_file(self, file: str) -> None:
        """Add a file if it is a user file, without what it imports."""
        if (path := self._user_path(file)) is not None:
            self.files.add(path)

    def add_target(self, target: str) -> bool:
        """Add the module of a target (`package.module.Class`) in any location; return whether it exists."""
        chain = list(self._chain(target))
        if not chain:
            return False
        (_, top), (name, module) = chain[0], chain[-1]
        if module.file is not None and is_installed(module.file):
            self.files.add(module.file)
        elif top.file is None or top.folders:
            self._folders += top.folders
        else:
            self._folders.append(str(Path(top.file).parent))
        self._add_modules([name])
        return True

    def _add_modules(self, names: Iterable[str]) -> None:
        pending = [*names]
        while pending:
            dotted = pending.pop()
            if dotted in self._visited:
                continue
            self._visited.add(dotted)
            for name, module in self._chain(dotted):
                path = None if module.file is None else self._user_path(module.file)
                if module.file is not None and path is None:
                    break  # installed packages import no user code
                if path is not None and path not in self.files:
                    self.files.add(path)
                    pending += _imports(path, name if module.folders else name.rpartition(".")[0])

    def _chain(self, dotted: str) -> Iterator[tuple[str, _Module]]:
        """Yield the packages around a module and the module itself, up to the first that does not exist."""
        folders: Sequence[str] = self._search
        name = ""
        for part in dotted.split("."):
            name = f"{name}.{part}" if name else part
            if name not in self._found:
                self._found[name] = _find(part, folders) if part.isidentifier() else None
            module = self._found[name]
            if module is None:
                return
            yield name, module
            folders = module.folders

    def _user_path(self, file: str) -> str | None:
        """Return the path of a file below one of the folders; None for any other file."""
        if is_installed(file):
            return None
        paths = (os.path.normpath(file), os.path.realpath(file))
        return next((path for path in paths if any(is_below(path, folder) for folder in self._folders)), None)


def _find(name: str, folders: Sequence[str]) -> _Module | None:
    """Find a module in the first folder that has it; folders without `__init__.py` form one namespace package."""
    portions = []
    for folder in folders:
        path = Path(folder, name)
        if _passes(Path.is_file, inner := path / "__init__.py"):
            return _Module(str(inner), (str(path),))
        for suffix in _SUFFIXES:
            if _passes(Path.is_file, file := Path(f"{path}{suffix}")):
                return _Module(str(file))
        if _passes(Path.is_dir, path):
            portions.append(str(path))
    return _Module(None, tuple(portions)) if portions else None


def _passes(test: Callable[[Path], bool], path: Path) -> bool:
    """Whether a path passes a test; not if its folder is unreadable or its name too long, which Python passes over."""
    try:
        return test(path)
    except OSError:
        return False


def _imports(file: str, package: str) -> list[str]:
    """List the modules that a source file in `package` may import: a and a.b for `from a import b`."""
    if not file.endswith(".py"):
        return []
    names: list[str] = []
    for found in _IMPORT.finditer(_IGNORED.sub(" ", _read_text(file))):
        if found["modules"] is not None:
            names += _first_words(found["modules"])
            continue
        try:
            origin = resolve_name(found["origin"], package)
        except ImportError:  # relative, outside a package
            continue
        names += [origin, *(f"{origin}.{name}" for name in _first_words(found["names"].strip("()")))]
    return names


def _first_words(listed: str) -> list[str]:
    return [words[0] for each in listed.split(",") if (words := each.split())]


def _read_text(file: str) -> str:
    try:
        return Path(file).read_text("utf-8", errors="replace")
    except OSError:  # hashing the file reports it
        return ""


@cache
def is_installed(file: str) -> bool:
    """Return whether a file belongs to an installed package, to Python or to this package: these have versions."""
    return any(name in file for name in _INSTALL_FOLDERS) or any(is_below(file, each) for each in _versioned_folders())


@cache
def _versioned_folders() -> tuple[str, ...]:
    """Return the folders of Python's library and commands and of this package, which may be a checkout."""
    return (*map(sysconfig.get_path, ("stdlib", "platstdlib", "scripts")), str(Path(__file__).parents[2]))


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is below a folder, judged by their names."""
    return path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


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
