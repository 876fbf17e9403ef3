"""Tests of the package's structure: small folders, and documents that name modules which exist."""

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
