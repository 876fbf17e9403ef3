"""Tests of `runmanager best`."""

import json
from collections.abc import Callable

from runmanager.records.files.paths import SweepPaths


def test_best_is_printed_with_uncertainty_command_and_weights(command: Callable, sweep: SweepPaths) -> None:
    text = command("best", "grid").out
    assert text.startswith("grid: the best val_accuracy is 0.8800 (n=1) with batch_size=100, device=cpu.")
    assert "not known: too few runs" in text
    assert "none were kept" in text
    plain = json.loads(command("best", "grid", "--where", "batch_size>100", "--format", "json").out)
    assert plain["best"]["settings"] == {"batch_size": 1000, "device": "cpu"}
    assert plain["runner_up"] is None
    next(sweep.runs.iterdir()).joinpath("run.json").write_text("{")
    assert "warning: not read: " in command("best", "grid").err
