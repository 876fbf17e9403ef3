"""A run that is killed in a random epoch and resumed ends bit-equal to an undisturbed one."""

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

# Per variant the process that each run kills, itself or its driver, in a random epoch.
VICTIM = {"adam": "run", "sgd": "driver", "resident": "run"}


@pytest.mark.parametrize("variant", VICTIM)
def test_killed_and_resumed_run_is_bit_equal_to_undisturbed(
    variant: str, kills: ModuleType, undisturbed: Callable[[str], Any]
) -> None:
    whole = undisturbed(variant)
    broken = kills.Sweep(whole.folder, variant, f"broken-{variant}")
    deaths = whole.folder / "deaths"
    deaths.mkdir(exist_ok=True)
    generator = random.Random(variant)
    epochs = {paths.name: generator.randint(1, 12) for paths in whole.run_paths()}
    for name, epoch in epochs.items():
        (deaths / name).write_text(f"{epoch} {VICTIM[variant]}")
    commands = 0
    while not commands or list(deaths.iterdir()):
        assert commands <= len(epochs), broken.log()
        process = broken.start()
        with kills.killed_at_exit(process):
            assert process.wait(kills.DEADLINE_SECONDS) in (1, -9), broken.log()
        commands += 1
        kills.wait_until(lambda: not broken.running(), "the death of the killed driver's runs")
    assert commands == (1 if VICTIM[variant] == "run" else len(epochs))
    assert broken.run() > 0
    assert kills.differences(broken, whole) == []
    attempts = {record.name: record.attempt for record in broken.records()}
    assert attempts == dict.fromkeys(epochs, 2)
    for name, epoch in epochs.items():
        begun = [number for run, number in broken.begun() if run == name]
        assert begun == [*range(1, epoch + 1), *range(epoch, 13)], "no finished epoch runs twice"
