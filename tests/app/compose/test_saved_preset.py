"""Presets of the user: written by --save, found in the current folder, with the cells of the command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

WORDS = ("lr=0.1,0.01", "batch_size=16,32", "model=mlp", "model.hidden=[8]", "name='a b'")
RULES = ("--exclude", "lr>0.05 and batch_size<20")


def plan(done: Any) -> list[str]:
    assert done.status == 0, done.err
    return [line.split()[0] for line in done.out.splitlines() if "  start  new" in line]


def test_a_saved_grid_has_the_cells_of_its_command(command: Callable[..., Any], tmp_path: Path) -> None:
    saved = command("-m", "--save", "mine", *WORDS, *RULES, "hydra.launcher.workers=2", "--notify", "")
    assert saved.status == 2 and "`--notify` must have a value" in saved.err
    saved = command("-m", "--save", "mine", *WORDS, *RULES, "hydra.launcher.workers=2")
    assert saved.status == 0 and "runmanager sweep experiment=mine" in saved.out
    file = tmp_path / "conf" / "experiment" / "mine.yaml"
    text = file.read_text()
    assert "workers: 2" in text and not (tmp_path / "outputs").exists()
    expected = plan(command("-m", *WORDS, *RULES, "--dry-run"))
    assert len(expected) == 3
    assert plan(command("-m", "experiment=mine", "--dry-run")) == expected
    assert len(plan(command("-m", "experiment=mine", "batch_size=64", "--dry-run"))) == 2
    assert "did you mean 'mine'" in command("-m", "experiment=mnie", "--dry-run").err

    assert "mine.yaml exists" in command("-m", "--save", "mine", "lr=1,2").err
    assert command("-m", "--save", "mine", "lrr=1,2").faults[0].startswith("error: `lrr` must be a setting")
    assert "`--save`" in command("-m", "--save", "again", "experiment=mine").err
    assert file.read_text() == text
    assert command("-m", "--save", "mine", "--yes", "lr=1,2").status == 0
    assert file.read_text() != text


def test_a_name_of_a_preset_of_the_package_is_refused(command: Callable[..., Any], tmp_path: Path) -> None:
    assert "preset of this package" in command("-m", "--save", "digits_quick", "lr=1,2").err
    folder = tmp_path / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "digits_quick.yaml").write_text("# @package _global_\nlr: 3\n")
    refused = command("experiment=digits_quick", "--dry-run")
    assert refused.status == 2 and "`experiment` must name one preset" in refused.err
