"""Tests of the package's structure: small folders, and documents that name modules which exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "runmanager"
ROOMS = sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists())
MAX_MODULES = 25
DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def test_no_folder_has_more_modules_than_a_reader_can_take_in() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE / "cli" / "commands"}
    sizes = {str(folder): len([path for path in folder.glob("*.py") if path.stem != "__init__"]) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > MAX_MODULES} == {}


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
    "app/display/output_console.py": "consoles for tables and live displays",
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
