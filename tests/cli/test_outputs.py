"""Commands print on a sweep of an earlier version exactly what the pages in tests/cli/outputs show."""

from pathlib import Path

import pytest

from ..documented import OUTPUTS, fits, output_of, read_page, stored_sweep_in


@pytest.mark.parametrize("page", OUTPUTS, ids=lambda page: page.stem)
def test_commands_print_on_a_stored_sweep_what_they_did(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("RUNMANAGER_COMMIT", "RUNMANAGER_DATA", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    with stored_sweep_in(tmp_path):
        for command in read_page(page.read_text()):
            if command.missing is not None:
                pytest.skip(f"{command.missing} is not installed")
            got = output_of(command)
            assert fits(command.lines, got), "\n".join([f"$ {command}", *got, "", "python -m tests.documented updates"])
