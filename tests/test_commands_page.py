"""docs/commands.md shows exactly what its commands print on the example sweep."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .documented import PAGE, DocumentedCommand, example_in, fits, output_of, read_page

COMMANDS = read_page(PAGE.read_text())


@pytest.fixture(scope="module", autouse=True)
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Write the example sweep to a separate folder, outside any git repository."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("RUNMANAGER_COMMIT", "RUNMANAGER_DATA", "NO_COLOR", "FORCE_COLOR"):
            patch.delenv(variable, raising=False)
        with example_in(tmp_path_factory.mktemp("example")):
            yield


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_command_prints_what_the_page_shows(command: DocumentedCommand) -> None:
    if command.missing is not None:
        pytest.skip(f"{command.missing} is not installed")
    got = output_of(command)
    assert fits(command.lines, got), "\n".join([f"$ {command}", *got, "", "python -m tests.documented updates it"])


def test_page_shows_every_command_on_results() -> None:
    shown = {command.args[1] for command in COMMANDS}
    assert shown >= {"table", "compare", "best", "show", "diff", "reproduce", "report", "export", "watch"}


def test_dots_match_any_lines_and_other_lines_match_exactly() -> None:
    assert fits(("a", "...", "z"), ["a", "b", "c", "z"])
    assert fits(("a", "..."), ["a"])
    assert not fits(("a", "...", "z"), ["a", "b"])
    assert not fits(("a.c",), ["abc"])


def test_example_does_not_depend_on_its_folder(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with example_in(tmp_path / name):
            texts.append({path.name: (path / "run.json").read_text() for path in Path("outputs/digits/runs").iterdir()})
    assert texts[0] == texts[1]
    assert len(texts[0]) == 12
