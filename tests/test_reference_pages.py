"""The pages in docs/reference are those of the code, and no setting of the code lacks its description."""

import runpy
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "docs"
WRITER = "write_reference.py"


@pytest.fixture(scope="module")
def pages() -> Any:
    for framework in ("lightning", "transformers", "accelerate"):
        pytest.importorskip(framework)
    return runpy.run_path(str(FOLDER / WRITER))["PAGES"]


@pytest.mark.parametrize("name", ["settings.md", "commands.md", "api.md"])
def test_page_is_not_older_than_the_code(pages: Any, name: str) -> None:
    written = (FOLDER / "reference" / name).read_text(encoding="utf-8")
    assert pages[name]() == written, f"python docs/{WRITER} writes it"


def test_no_page_is_left_of_what_was_removed(pages: Any) -> None:
    assert {path.name for path in (FOLDER / "reference").iterdir()} == set(pages)
