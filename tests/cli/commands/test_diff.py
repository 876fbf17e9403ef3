"""Tests of `runmanager diff`."""

import json
from collections.abc import Callable

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
