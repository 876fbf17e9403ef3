"""A script as it was named on the command line: its command, its file, and what its source says about it."""

import ast
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runmanager.app.programs.script.arguments.argument_library import find_libraries
from runmanager.errors import UsageError
from runmanager.text import encodable
from runmanager.tracking.environment.code_hashes import hash_script

__all__ = ["Script", "find_script"]

_IMPORTS_US = re.compile(rb"^\s*(import|from)\s+runmanager\b", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """A script: a path that ends in `.py`, or a module run with `-m`.

    `word` is the path or the module's dotted name, `file` its source if it was found, `package` the module's package,
    `folder` the folder in which it runs, and `python` its interpreter.
    """

    word: str
    is_module: bool
    file: Path | None
    folder: Path
    python: str

    @property
    def command(self) -> list[str]:
        """The words that start the script, without arguments."""
        return [self.python, *(["-m"] if self.is_module else []), self.word]

    @property
    def name(self) -> str:
        """The script as an identity names it: the path from the folder, or `-m module`."""
        if self.is_module or self.file is None:
            return f"-m {self.word}"
        return os.path.relpath(self.file, self.folder.resolve())

    @property
    def package(self) -> str:
        """The package for relative imports; empty for a file."""
        if not self.is_module:
            return ""
        is_package = self.file is not None and self.file.name == "__main__.py" and not self.word.endswith("__main__")
        return self.word if is_package else self.word.rpartition(".")[0]

    @property
    def code_folder(self) -> Path:
        """The folder below which files count as the script's own code: its own, or that of the call for a module."""
        return self.folder if self.is_module or self.file is None else self.file.parent

    @property
    def libraries(self) -> frozenset[str]:
        """The libraries that read the script's arguments, of those that its source shows and that honour `--help`."""
        if self.file is None:
            return frozenset()
        return find_libraries(self.file, self.package, self._import_folders)

    def uses_runmanager(self, code: Iterable[str]) -> bool:
        """Whether one of the files of its code, by their names in `hash_code`, imports this package."""
        return any(_IMPORTS_US.search((self.folder / name).read_bytes()) for name in code)

    def hash_code(self) -> dict[str, str] | None:
        """Hash the script and the local files that it imports; None if its source is not known."""
        if self.file is None:
            return None
        return hash_script(self.file, self.package, self._import_folders, relative_to=self.folder)

    @property
    def is_hydra_application(self) -> bool:
        """Whether the script's own source applies `hydra.main`."""
        return self.file is not None and _is_hydra_application(self.file)

    @property
    def _import_folders(self) -> list[str]:
        return list(dict.fromkeys((str(self.code_folder), str(self.folder))))


def find_script(word: str, *, is_module: bool, python: str | None = None, folder: Path | None = None) -> Script:
    """Return the script of a command given in `folder` (default: the current one).

    A module is looked for in the folder and, under this interpreter, among the installed ones; another interpreter may
    have it elsewhere. Raises `UsageError` if the script does not exist, or its name cannot be recorded.
    """
    folder = (folder or Path.cwd()).absolute()
    interpreter = _find_python(python)
    if encodable(word) != word:
        way_out = "start it from its own folder, or rename it"
        raise UsageError(f"The program's path must be text that UTF-8 can encode, got {word!r}; {way_out}.")
    if not is_module:
        file = folder / word
        if not file.is_file():
            raise UsageError(f"The program must be a Python file, got `{word}`, which does not exist in {folder}.")
        return Script(word, False, file.resolve(), folder, interpreter)
    found = _find_module(word, folder)
    if found is None and interpreter == sys.executable:
        raise UsageError(f"The program must be a module, got `-m {word}`, which is neither in {folder} nor installed.")
    return Script(word, True, found, folder, interpreter)


def _find_python(python: str | None) -> str:
    if python is None:
        return sys.executable
    path = Path(python)
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UsageError(f"`--python` must be a Python interpreter, got {python}, which cannot be run.")
    return str(path.absolute())  # not resolved: a virtual environment's interpreter is a link


def _find_module(name: str, folder: Path) -> Path | None:
    """Find the file of a module, or the `__main__.py` of a package, without importing anything."""
    for base in (str(folder), *sys.path):
        path = Path(base or folder, *name.split("."))
        for file in (path / "__main__.py", path.with_name(f"{path.name}.py")):
            if file.is_file():
                return file.resolve()
    return None


def _is_hydra_application(file: Path) -> bool:
    """Whether a source file applies `hydra.main`, as a decorator or by a call. Nothing of the file is run."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    names: set[str] = set()  # local names of `hydra.main`
    modules: set[str] = set()  # local names of the package `hydra`
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.asname or "hydra" for each in node.names if _is_hydra(each)}
        elif isinstance(node, ast.ImportFrom) and node.module in ("hydra", "hydra.main") and node.level == 0:
            names |= {each.asname or each.name for each in node.names if each.name == "main"}
    return any(_is_main(node.func, names, modules) for node in ast.walk(tree) if isinstance(node, ast.Call))


def _is_hydra(imported: ast.alias) -> bool:
    # `import hydra.core` binds `hydra` too; `import hydra.core as core` does not.
    return imported.name == "hydra" or (imported.name.startswith("hydra.") and imported.asname is None)


def _is_main(function: ast.expr, names: set[str], modules: set[str]) -> bool:
    match function:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(value=ast.Name(id=module), attr="main"):
            return module in modules
    return False
