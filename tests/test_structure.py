"""Tests of the package's structure: small folders, and documents that name modules which exist."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "runmanager"
ROOMS = sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists())
MAX_MODULES = 25  # of a folder
MAX_LINES = 400  # of a module
SMALL = 60  # lines: a module below that belongs into its importer if it has a single one
DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
MODULES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text()
    for path in sorted(PACKAGE.rglob("*.py"))
    if "plugins" not in path.parts
}

LONG = {"app/programs/application/application.py"}
"""Modules above `MAX_LINES`. The list only shrinks."""
SMALL_WITH_ONE_IMPORTER = {
    "app/compose/override_errors.py": "imported only where a command is wrong",
    "app/programs/script/rank_entry.py": "the main module of each rank",
    "results/export/parquet.py": "imported only by an export to Parquet",
}
"""Modules of fewer than `SMALL` lines with one importer, and why, if there is a reason. The list only shrinks.

A command of the command line is a module of its own.
"""


def imported(text: str, *, at_load: bool = False) -> set[str]:
    """The modules of the package that a module imports; `at_load` leaves out those within functions."""
    tree = ast.parse(text)
    names = set()
    for node in tree.body if at_load else ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{each.name}" for each in node.names} | {node.module}
        elif isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
    paths = {
        f"{name.removeprefix('runmanager.').replace('.', '/')}.py" for name in names if name.startswith("runmanager.")
    }
    return paths & MODULES.keys()


def test_no_folder_has_more_modules_than_a_reader_can_take_in() -> None:
    folders = Counter(str(Path(name).parent) for name in MODULES if not name.endswith("__init__.py"))
    assert {folder: size for folder, size in folders.items() if size > MAX_MODULES} == {}


def test_no_module_is_longer_than_a_reader_can_take_in() -> None:
    assert {name for name, text in MODULES.items() if text.count("\n") > MAX_LINES} == LONG


def test_no_modules_import_each_other_in_a_circle() -> None:
    top = {name: imported(text, at_load=True) for name, text in MODULES.items()}
    while free := [name for name, names in top.items() if not names]:
        for name in free:
            del top[name]
        top = {name: names & top.keys() for name, names in top.items()}
    assert top == {}


def test_no_module_gives_a_name_twice() -> None:
    """The second value would hold in the functions above it too; such names meet where two modules become one."""
    twice = {}
    for name, text in MODULES.items():
        assigned = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
        given = Counter(target.id for node in assigned for target in node.targets if isinstance(target, ast.Name))
        twice[name] = [each for each, count in given.items() if count > 1]
    assert {name: names for name, names in twice.items() if names} == {}


def test_no_small_module_has_one_importer_alone_without_a_reason() -> None:
    importers = Counter(each for name, text in MODULES.items() for each in imported(text) - {name})
    small = {
        name
        for name, text in MODULES.items()
        if text.count("\n") < SMALL and importers[name] == 1 and not name.startswith("cli/commands/")
    }
    assert small == SMALL_WITH_ONE_IMPORTER.keys()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_modules_that_a_document_names_exist(document: Path) -> None:
    named = re.findall(rf"(?<![\w/])((?:runmanager/)?(?:{'|'.join(ROOMS)})/[\w/]+\.py)\b", document.read_text())
    named += list(re.findall(r"(?<![\w/])((?:benchmarks|tests)/[\w/]+\.(?:py|sh))\b", document.read_text()))
    missing = [path for path in named if not any((root / path).exists() for root in (PACKAGE, ROOT))]
    assert missing == []


def test_the_map_names_modules() -> None:
    """The test above would pass on a map without any path."""
    assert len(re.findall(r"`[\w/]+\.py`", (ROOT / "docs" / "architecture.md").read_text())) > 30


PRINTING = {
    "records/host/standard_streams.py": "lines for any stream",
    "cli/printing.py": "what commands print",
    "app/display/output.py": "consoles for tables and live displays",
}
"""The only modules that write to a standard stream, after `printable`; others call their functions."""


PRINTERS = (
    *("print", "typer.echo", "typer.secho", "Console", "traceback.print_exc", "sys.stdout.write", "sys.stderr.write"),
    *("rich.print", "rich.get_console", "sys.stdout.writelines", "sys.stderr.writelines"),
)


def test_nothing_is_printed_but_by_the_functions_that_make_it_printable() -> None:
    """Others may print a constant or the help of a command."""
    allowed = ("ctx.get_help()", "context.get_help()", "f'runmanager {__version__}'")
    found = {}
    for path in PACKAGE.rglob("*.py"):
        calls = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call)]
        printing = [(each.args or [each])[0] for each in calls if ast.unparse(each.func) in PRINTERS]
        texts = [ast.unparse(each) for each in printing if not isinstance(each, ast.Constant)]
        if others := [text for text in texts if text not in allowed]:
            found[path.relative_to(PACKAGE).as_posix()] = others
    assert found.keys() <= PRINTING.keys(), found


def test_commands_are_quoted_by_one_function() -> None:
    """`shlex` quotes for a POSIX shell; what it writes is only read by this program itself."""
    own = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"shlex\.(quote|join)", path.read_text())
    }
    assert own == {"tracking/environment/environment.py"}


def test_csv_is_written_by_one_function() -> None:
    writing = re.compile(r"csv\.(writer|DictWriter)|[a-z_]*frame\.to_csv")
    assert [path.name for path in PACKAGE.rglob("*.py") if writing.search(path.read_text())] == ["text_formats.py"]
