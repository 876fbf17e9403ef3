"""The source files that a program reaches by its imports: found by reading their text. Nothing is imported or run.

Only files of the user's own are followed: those below given folders that are not installed. `import_module` with a name
that is made up while the program runs is not seen.
"""

import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

__all__ = ["ImportScanner", "is_below", "is_installed"]

_SUFFIXES = (*EXTENSION_SUFFIXES, ".py")  # in the order in which Python looks for them
_INSTALLED_IN = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_NOT_READ = re.compile(r"#.*|\\\r?\n")  # comments, and ends of lines that end nothing
_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*"
    r"(?:from[ \t]*(?P<origin>\.*[\w.]*)[ \t]*import[ \t]*(?P<names>\([^)]*\)|[^\n;]*)"
    r"|import[ \t]+(?P<modules>[^\n;]*))",
    re.MULTILINE,
)


class _Module(NamedTuple):
    """Where a module lies: its file, none for a folder without `__init__.py`; for a package where its modules are."""

    file: str | None
    folders: tuple[str, ...] = ()


class ImportScanner:
    """Gathers `files`, the own ones that modules and scripts lead to; modules are looked for in `folders` first."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.files: set[str] = set()
        self._folders = [*folders]
        self._search = [*self._folders, *(entry or str(Path.cwd()) for entry in sys.path)]
        self._found: dict[str, _Module | None] = {}
        self._asked: set[str] = set()

    def take_script(self, file: str, package: str) -> None:
        """Take a script, which is run as a module of `package`, and what it imports."""
        self.take_file(file)
        self._take_modules(_imports(file, package))

    def take_file(self, file: str) -> None:
        """Take a file if it is an own one, and nothing that it imports."""
        if (own := self._own(file)) is not None:
            self.files.add(own)

    def take_target(self, target: str) -> bool:
        """Take the module of a target (`package.module.Class`), wherever it lies; whether there is one."""
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
        self._take_modules([name])
        return True

    def _take_modules(self, names: Iterable[str]) -> None:
        waiting = [*names]
        while waiting:
            dotted = waiting.pop()
            if dotted in self._asked:
                continue
            self._asked.add(dotted)
            for name, module in self._chain(dotted):
                own = None if module.file is None else self._own(module.file)
                if module.file is not None and own is None:
                    break  # what is installed imports nothing of the user's
                if own is not None and own not in self.files:
                    self.files.add(own)
                    waiting += _imports(own, name if module.folders else name.rpartition(".")[0])

    def _chain(self, dotted: str) -> Iterator[tuple[str, _Module]]:
        """The packages on the way to a module, and itself, as far as they are found."""
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

    def _own(self, file: str) -> str | None:
        """The path of a file below one of the folders; None for any other."""
        if is_installed(file):
            return None
        paths = (os.path.normpath(file), str(Path(file).resolve()))
        return next((path for path in paths if any(is_below(path, folder) for folder in self._folders)), None)


def _find(name: str, folders: Sequence[str]) -> _Module | None:
    """A module in the first folder that has it; folders without `__init__.py` are one package if none has."""
    portions = []
    for folder in folders:
        path = Path(folder, name)
        if (inner := path / "__init__.py").is_file():
            return _Module(str(inner), (str(path),))
        for suffix in _SUFFIXES:
            if (file := Path(f"{path}{suffix}")).is_file():
                return _Module(str(file))
        if path.is_dir():
            portions.append(str(path))
    return _Module(None, tuple(portions)) if portions else None


def _imports(file: str, package: str) -> list[str]:
    """The modules that a source file in `package` may import; of `from a import b` both a and a.b."""
    if not file.endswith(".py"):
        return []
    names: list[str] = []
    for found in _IMPORT.finditer(_NOT_READ.sub(" ", _text_of(file))):
        if found["modules"] is not None:
            names += _first_words(found["modules"])
            continue
        try:
            origin = resolve_name(found["origin"], package)
        except ImportError:  # relative to nothing
            continue
        names += [origin, *(f"{origin}.{name}" for name in _first_words(found["names"].strip("()")))]
    return names


def _first_words(listed: str) -> list[str]:
    return [words[0] for each in listed.split(",") if (words := each.split())]


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text("utf-8", errors="replace")
    except OSError:  # said by whoever hashes it
        return ""


@cache
def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package, to Python, or to this package: these have versions."""
    return any(name in file for name in _INSTALLED_IN) or any(is_below(file, each) for each in _with_versions())


@cache
def _with_versions() -> tuple[str, ...]:
    """The folders of Python's library and commands, and of this package, which may lie in a checkout."""
    return (*map(sysconfig.get_path, ("stdlib", "platstdlib", "scripts")), str(Path(__file__).parents[2]))


def is_below(path: str, folder: str) -> bool:
    """Whether a path lies in a folder or its folders, by their names."""
    return path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)
