"""The end of a sweep: everything fits into the terminal, and the answers come last."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.stored_sweep import write_stored_sweep
from runmanager.app.display.final_summary import show_results


def shown(folder: Path, *, num_runs: int, terminal: tuple[int, int] | None) -> list[str]:
    text = io.StringIO()
    width, height = terminal or (10_000, 25)
    console = Console(file=text, width=width, height=height, force_terminal=terminal is not None, color_system=None)
    with contextlib.chdir(folder):
        show_results(write_stored_sweep(Path("outputs/first"), num_runs=num_runs, num_epochs=8), console)
    return text.getvalue().splitlines()


@pytest.mark.parametrize("num_runs", [12, 40])
def test_the_end_fits_into_the_terminal(num_runs: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    lines, high, piped = (
        shown(tmp_path_factory.mktemp("end"), num_runs=num_runs, terminal=terminal)
        for terminal in ((80, 24), (80, 80), None)
    )
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert lines[-1] == f"{num_runs} runs: {num_runs} finished."
    text = " ".join(" ".join(lines).split())
    assert re.search(rf"The first [35] of {num_runs} runs; `runmanager table first --all` shows all\.", text)
    assert "`runmanager table first` explains the columns, and has " in text
    assert "\n".join(lines).count("`runmanager table first`") == 1  # whole, so it can be copied
    for each in (high, piped):
        text = " ".join(" ".join(each).split())
        assert f"The first 10 of {num_runs} runs; `runmanager table first --all` shows all." in text
        assert re.search(r"`runmanager table first`( and `runmanager compare first`)? explains? the columns", text)
        assert "N/A is not measured" not in text and "Omitted" not in text and "\n[1]" not in "\n".join(each)
        assert each[-1] == lines[-1]
