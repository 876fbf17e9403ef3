"""A script as it was named on the command line: its command, its file, and what its source says about it."""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runmanager.errors import UsageError
from runmanager.text import encodable
from runmanager.tracking.environment.code_hashes import hash_script
from runmanager.tracking.environment.program_code import ImportScanner

_IMPORTS_US = re.compile(rb"^\s*(import|from)\s+runmanager\b", re.MULTILINE)


_ENTRIES: dict[str, dict[str, frozenset[str]]] = {
    "argparse": {"argparse": frozenset({"ArgumentParser"})},
    "click": {"click": frozenset({"command", "group", "Command", "Group"})},
    "typer": {"typer": frozenset({"Typer", "run"})},
    "tyro": {"tyro": frozenset({"cli", "extras"})},
    "absl": {"absl": frozenset({"app", "flags"}), "absl.app": frozenset({"run"})},
    "jsonargparse": {
        "jsonargparse": frozenset({"CLI", "auto_cli", "ArgumentParser", "auto_parser"}),
        **dict.fromkeys(("lightning.pytorch.cli", "pytorch_lightning.cli"), frozenset({"LightningCLI"})),
    },
    "fire": {"fire": frozenset({"Fire"})},
    "transformers": {
        "transformers": frozenset({"HfArgumentParser"}),
        "transformers.hf_argparser": frozenset({"HfArgumentParser"}),
    },
}
"""Libraries that print a help for `--help`: of each the names, by module, that a script uses to read its arguments."""

_ENTRY_OF_MODULE = {module: (library, names) for library, each in _ENTRIES.items() for module, names in each.items()}
_MODULES_OF_ENTRIES = frozenset(f"{module}.{name}" for module, (_, names) in _ENTRY_OF_MODULE.items() for name in names)


def find_libraries(script: Path, package: str, folders: Iterable[str]) -> frozenset[str]:
    """Return the libraries that the script, or a local module that it imports, reads its arguments with.

    `package` is that of a script run with `-m`; local modules are those below `folders`.
    """
    scanner = ImportScanner(folders)
    scanner.add_script(str(script), package)
    own = script.resolve()
    local = {Path(file).resolve() for file in scanner.files if file.endswith(".py")}
    return frozenset(library for file in {own, *local} for library in _libraries_of(file, is_script=file == own))


def _libraries_of(file: Path, *, is_script: bool) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):  # the script's own run will say so
        return
    uses = _Uses()
    for node in _nodes(tree, is_script=is_script):
        uses.add(node)
    for module in uses.modules_used():
        library = _ENTRY_OF_MODULE[module][0]
        if library != "argparse" or not uses.is_without_help:
            yield library


def _nodes(tree: ast.AST, *, is_script: bool) -> Iterator[ast.AST]:
    """Yield the nodes that are run: in an imported module those outside its `if __name__ == "__main__"`."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If) and not is_script and "__name__" in ast.dump(node.test):
            pending += node.orelse
        else:
            pending += ast.iter_child_nodes(node)


@dataclass
class _Uses:
    """The names that a file imports, and those that it uses."""

    modules: dict[str, str] = field(default_factory=dict)  # local name: the module, or the module's attribute
    attributes: set[tuple[str, str]] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    num_parsers: int = 0
    num_without_help: int = 0

    def add(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                for each in names:
                    local = each.asname or each.name.partition(".")[0]
                    self.modules[local] = each.name if each.asname else local
            case ast.ImportFrom(module=str(module), names=names, level=0):
                self.modules |= {each.asname or each.name: f"{module}.{each.name}" for each in names}
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                self.attributes.add((name, attribute))
            case ast.Name(id=name, ctx=ast.Load()):
                self.names.add(name)
            case ast.Call(keywords=keywords, func=ast.Attribute(attr="ArgumentParser") | ast.Name(id="ArgumentParser")):
                self.num_parsers += 1
                self.num_without_help += any(
                    each.arg == "add_help" and getattr(each.value, "value", True) is False for each in keywords
                )

    @property
    def is_without_help(self) -> bool:
        """Whether no parser of the file has a `--help`."""
        return 0 < self.num_parsers == self.num_without_help

    def modules_used(self) -> list[str]:
        """Return the modules of `_ENTRIES` of which the file uses an entry."""
        used = {self.modules[name] for name in self.names if name in self.modules}
        used |= {f"{self.modules[name]}.{attr}" for name, attr in self.attributes if name in self.modules}
        return [name.rpartition(".")[0] for name in sorted(used & _MODULES_OF_ENTRIES)]


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
    def command_anywhere(self) -> list[str]:
        """The same words for a process that works in another folder; a module's needs this one on its import path."""
        return self.command if self.is_module else [self.python, str(self.folder / self.word)]

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
