"""Tests of `runmanager diff`."""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from runmanager import RunManager
from runmanager.records.files.paths import SweepPaths


def test_diff_prints_only_differences(command: Callable, sweep: SweepPaths) -> None:
    sides = "grid/batch_size=100,device=cpu", "grid/batch_size=1000,device=cpu"
    text = command("diff", *sides).out
    assert "  batch_size  100  1000\n" in text
    assert "device" not in text.partition("Settings")[2]
    assert "One run each" in text
    plain = json.loads(command("diff", *sides, "--format", "json").out)
    assert plain["settings"] == {"batch_size": [100, 1000]}
    assert "Nothing differs." in command("diff", sides[0], sides[0]).out


def test_a_metric_that_a_program_logged_into_a_column_is_named_once(command: Callable, tmp_path: Path) -> None:
    manager = RunManager(tmp_path / "outputs" / "own", console=False)
    for lr in (0.1, 0.2):
        with manager.run({"lr": lr}, torch.nn.Linear(2, 2)) as run:
            for epoch in run.epochs(1):
                epoch.log(val_accuracy=lr, f1=lr)
    sides = [f"{tmp_path}/outputs/own/lr={lr}" for lr in (0.1, 0.2)]
    plain = json.loads(command("diff", *sides, "--format", "json").out)
    assert plain["metrics"]["val_accuracy"] == [0.1, 0.2] and plain["logged"] == {"f1": [0.1, 0.2]}
