"""Images of the terminal show real output and load nothing from other hosts."""

import runpy
from pathlib import Path

import pytest

from .documented import ROOT, example_in


def test_image_shows_the_output_of_the_command(tmp_path: Path) -> None:
    pytest.importorskip("pyte")
    draw = runpy.run_path(str(ROOT / "docs" / "terminal_pictures.py"))["draw_command"]
    with example_in(tmp_path):
        draw(("table", "digits", "--where", "device==gpu"), tmp_path, tmp_path / "table.svg")
    drawn = (tmp_path / "table.svg").read_text().replace("&#160;", " ")
    assert "$ runmanager table digits --where device==gpu" in drawn
    assert "0 of 12 runs match device==gpu. Here device is cpu." in drawn
    assert "@font-face" not in drawn
    assert "url(http" not in drawn
