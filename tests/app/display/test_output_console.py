"""Tests of the console of a command's output."""

import pytest

from runmanager.app.display.output_console import make_console


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
        console.print("[red]word[/red]")
    assert not console.is_terminal and capture.get() == "word\n"
