"""Tests of the `--scalar` that is proposed for what a script has printed."""

import shlex
from pathlib import Path

import pytest

from runmanager.app.programs.metric_advice import scalar_example
from runmanager.app.programs.script.output.scalar_pattern import parse_scalars


@pytest.mark.parametrize(
    ("printed", "name", "value"),
    [
        ("epoch 3\nval_accuracy: 0.9473\n", "val_accuracy", 0.9473),
        ("epoch=3 loss=1.2e-05, seconds=3.1", "loss", 1.2e-05),
        ("val loss: 0.5 loss: 0.25", "val_loss", 0.5),
        ("Test Accuracy: 94.5%\nSaved to out/7.pt\nDone.", "Test_Accuracy", 94.5),
        ("loss 5", "loss", 5.0),
        ("fid = -3", "fid", -3.0),
        ("1.5.2: loss: 0.125 (it's fine)", "loss", 0.125),
    ],
)
def test_the_proposed_words_find_the_last_named_number(tmp_path: Path, printed: str, name: str, value: float) -> None:
    log = tmp_path / "run.log"
    log.write_text(printed)
    option, definition = shlex.split(scalar_example(log))
    (pattern,) = parse_scalars([definition])
    found = [each for line in printed.splitlines() for each in pattern.values(line)]
    assert (option, pattern.name, found[-1]) == ("--scalar", name, value)


@pytest.mark.parametrize("printed", ["", "Done.", "Saved 12 files to out/3", "loss: nan", "\x00\xff"])
def test_without_a_named_number_nothing_is_proposed(tmp_path: Path, printed: str) -> None:
    (tmp_path / "run.log").write_text(printed)
    assert scalar_example(tmp_path / "run.log") == ""
    assert scalar_example(tmp_path / "missing.log") == ""
