"""docs/commands.md shows what its commands print on the example sweep, to the letter."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .documented import PAGE, DocumentedCommand, example_in, fits, output_of, read_page

COMMANDS = read_page(PAGE.read_text())


@pytest.fixture(scope="module", autouse=True)
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The example sweep in a folder of its own, which is no git repository."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("RUNMANAGER_COMMIT", "RUNMANAGER_DATA", "NO_COLOR", "FORCE_COLOR"):
            patch.delenv(variable, raising=False)
        with example_in(tmp_path_factory.mktemp("example")):
            yield


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_command_prints_what_the_page_says(command: DocumentedCommand) -> None:
    if command.missing is not None:
        pytest.skip(f"{command.missing} is not installed")
    got = output_of(command)
    assert fits(command.lines, got), "\n".join([f"$ {command}", *got, "", "python -m tests.documented writes it anew"])


def test_page_shows_every_command_on_results() -> None:
    shown = {command.words[1] for command in COMMANDS}
    assert shown >= {"table", "compare", "best", "show", "diff", "reproduce", "report", "export", "watch"}


def test_any_lines_fit_dots_and_nothing_else_does() -> None:
    assert fits(("a", "...", "z"), ["a", "b", "c", "z"])
    assert fits(("a", "..."), ["a"])
    assert not fits(("a", "...", "z"), ["a", "b"])
    assert not fits(("a.c",), ["abc"])


def test_example_is_the_same_wherever_it_is_written(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with example_in(tmp_path / name):
            texts.append({path.name: (path / "run.json").read_text() for path in Path("outputs/digits/runs").iterdir()})
    assert texts[0] == texts[1]
    assert len(texts[0]) == 12
