"""Which libraries read a script's arguments, found in its source. Nothing of the script is run."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runmanager.tracking.environment.import_scanner import ImportScanner

__all__ = ["find_libraries"]

_ENTRIES: dict[str, dict[str, frozenset[str]]] = {
    "argparse": {"argparse": frozenset({"ArgumentParser"})},
    "click": {"click": frozenset({"command", "group", "Command", "Group"})},
    "typer": {"typer": frozenset({"Typer", "run"})},
    "tyro": {"tyro": frozenset({"cli", "extras"})},
    "absl": {"absl": frozenset({"app", "flags"}), "absl.app": frozenset({"run"})},
    "jsonargparse": {"jsonargparse": frozenset({"CLI", "auto_cli", "ArgumentParser", "auto_parser"})},
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
