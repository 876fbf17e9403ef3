"""Tests of the console of a command's output."""

import pytest
from rich.table import Table
from rich.text import Text

from runmanager.app.display.output import make_console


@pytest.mark.parametrize(
    "environment",
    [
        {"JPY_PARENT_PID": "7", "FORCE_COLOR": "1"},
        {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "FORCE_COLOR": "1"},
    ],
)
def test_output_in_a_notebook_is_plain_despite_forced_colours(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert make_console({}).is_terminal, "elsewhere it is respected"
    console = make_console(environment)
    with console.capture() as capture:
        console.print(Text("word", style="red"))
    assert not console.is_terminal and capture.get() == "word\n"


def test_a_console_shows_text_as_it_is_and_obeys_none_of_it() -> None:
    console = make_console({"COLUMNS": "40"})
    with console.capture() as capture:
        console.print("[red]a[/red] :smile: \x1b[31m\u202e", Table("[b]", "c"), soft_wrap=True)
    assert capture.get().startswith(r"[red]a[/red] :smile: \x1b[31m\u202e") and "[b]" in capture.get()
