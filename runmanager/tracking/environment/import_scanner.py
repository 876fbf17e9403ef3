"""Scanner for the source files that a program imports. It reads their text and imports and executes nothing.

It follows user files only: those below given folders that are not installed. It misses `import_module` with a name
computed at run time.
"""

import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

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
