"""What a run has printed that may be a metric, and the `--scalar` that is proposed for it."""

import shlex
from pathlib import Path

import pytest

from runmanager.app.programs.cell_metrics import logged_numbers
from runmanager.app.programs.script.output.scalar_pattern import parse_scalars


@pytest.mark.parametrize(
    ("printed", "name", "value"),
    [
        ("epoch 3\nval_accuracy: 0.9473\n", "val_accuracy", 0.9473),
        ("epoch=3 loss=1.2e-05, seconds=3.1", "loss", 1.2e-05),
        ("val loss: 0.5 mse: 0.25", "val_loss", 0.5),
        ("Test Accuracy: 94.5%\nSaved to out/7.pt\nDone.", "Test_Accuracy", 0.945),
        ("Test set: Accuracy: 9/12 (75%)", "Test_Accuracy", 0.75),
        ("Loss 0.5 (0.625)", "Loss", 0.625),
        ("{'eval': {'f1': 0.5}}", "eval/f1", 0.5),
        ("fitness 0.75 3.1 it/s", "fitness", 0.75),
        ("elbo = -3.5", "elbo", -3.5),
        ("1.5.2: loss: 0.125 (it's fine)", "loss", 0.125),
    ],
)
def test_the_proposed_words_find_the_last_value(tmp_path: Path, printed: str, name: str, value: float) -> None:
    log = tmp_path / "run.log"
    log.write_text(printed)
    first = logged_numbers(log, {})[0]
    option, definition = shlex.split(first.option)
    (pattern,) = parse_scalars([definition])
    found = [each for line in printed.splitlines() for each in pattern.values(line)]
    assert (option, pattern.name, found[-1], first.value) == ("--scalar", name, value, value)


@pytest.mark.parametrize(
    "printed",
    [
        *("", "Done.", "Saved 12 files to out/3", "\x00\xff", "Time: 0.5 SPS: 1250.5 v_num=0.1"),
        *("eval_steps_per_second: 3.5", "new_top_score_of 0.5", "batch_size: 0.5 epoch 3.0 eta 1.5 threshold=0.5"),
        *("fitness 3", "momentum 0.75"),
    ],
)
def test_no_rate_time_counter_or_setting_is_proposed(tmp_path: Path, printed: str) -> None:
    (tmp_path / "run.log").write_text(printed)
    assert logged_numbers(tmp_path / "run.log", {}) == []
    assert logged_numbers(tmp_path / "missing.log", {}) == []


def test_a_setting_that_is_echoed_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("dropout: 0.25\nsmoothing: 0.5\n")
    assert [each.name for each in logged_numbers(tmp_path / "run.log", {"dropout": 0.25})] == ["smoothing"]
