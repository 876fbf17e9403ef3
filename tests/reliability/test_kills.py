"""A short form of `make test-kill`, kills in chosen epochs, and a check that the harness detects differences."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from runmanager.records.storage.reader import read_record

# Per variant the process that each run kills, itself or its driver, in a random epoch.
VICTIM = {"adam": "run", "sgd": "driver", "resident": "run"}


@pytest.mark.release
def test_repeatedly_killed_sweeps_end_like_undisturbed_ones(killer: Any) -> None:
    tally = killer.run(3)
    assert dict(tally.kills) == {"driver": 1, "run": 1, "group": 1}
    assert (tally.lost, tally.run_twice, tally.untrue, tally.differing) == (0, 0, [], [])


@pytest.mark.release
def test_repeatedly_killed_cells_of_a_script_end_like_undisturbed_ones(kills: ModuleType, tmp_path: Path) -> None:
    program = kills.PROGRAMS["script"]
    variants = {"resumed": program.variants["resumed"]}
    few = type("Few", (program,), {"variants": variants, "rates": "0.1,0.2"})
    killer = kills.Killer(tmp_path, seed=1, program=few, report=lambda line: None)
    tally = killer.run(4)
    assert dict(tally.kills) == dict.fromkeys(program.targets, 1)
    assert (tally.lost, tally.run_twice, tally.untrue, tally.differing) == (0, 0, [], [])

    whole = killer.reference("resumed")[0]
    assert list(whole.untrue_states({})) == []
    ended = whole.paths.root / "ended.txt"
    first, second = ended.read_text().splitlines()
    ended.write_text(f"{first}\n")
    path, other = (whole.paths.run(line.rpartition(" ")[0]) for line in (first, second))
    names = [read_record(each).name for each in (path, other)]
    path.record.write_text(path.record.read_text().replace('"finished"', '"failed"', 1))
    untrue = list(whole.untrue_states({names[0]: {"killed (signal)"}}))
    states = {f"{names[0]} reads failed (None)", f"{names[1]} reads finished (None)"}
    assert {each.partition(": ")[2] for each in untrue} == states


@pytest.mark.release
def test_differences_are_detected(kills: ModuleType, undisturbed: Callable[[str], Any], tmp_path: Path) -> None:
    whole = undisturbed("resident")
    assert kills.differences(whole, whole) == []
    other = kills.Sweep(tmp_path, "resident", whole.name)
    paths = other.paths
    shutil.copytree(whole.paths.root, paths.root)
    assert kills.differences(whole, other) == []
    run = other.run_paths()[0]
    state = torch.load(run.checkpoint, weights_only=True)
    state["model"]["layers.1.bias"][0] += 1e-6
    torch.save(state, run.checkpoint)
    lines = paths.epochs_csv.read_text().splitlines()
    paths.epochs_csv.write_text("\n".join(lines[:-1]) + "\n")
    first, second = kills.differences(whole, other)
    assert first.startswith("epochs.csv")
    assert second.endswith(str(run.checkpoint))


def test_row_replaces_the_earlier_one(kills: ModuleType, tmp_path: Path) -> None:
    tally = kills.Tally(sweeps=2, commands=5)
    tally.kills.update(driver=2, run=1)
    page = tmp_path / "page.md"
    page.write_text("| what | seen | command |\n| --- | --- | --- |\n| 0 SIGKILLs | nothing | none |\n\nMore.\n")
    kills.write_row(page, kills.ROWS["sweep"], kills.row(tally, seed=4))
    lines = page.read_text().splitlines()
    assert lines[2].startswith("| 3 SIGKILLs in 2 sweeps, 5 commands | 0 finished epochs lost, ")
    assert "--kills 3 --seed 4" in lines[2]
    assert lines[-1] == "More."


@pytest.mark.release
def test_repeatedly_killed_loops_end_like_undisturbed_ones(kills: ModuleType, tmp_path: Path) -> None:
    """Two variants; which variants and moments are hit in `make test-kill` is left to chance."""
    import loops

    (tmp_path / "deaths").mkdir()
    for variant, orders in {"generator": ["2 3"], "workers": ["1 4", "3 7"]}.items():
        whole, killed = (loops.Loop(tmp_path, variant, f"{name}-{variant}") for name in ("whole", "killed"))
        whole.run()
        for order in orders:
            (tmp_path / "deaths" / variant).write_text(order)
            assert killed.start().wait(kills.DEADLINE_SECONDS) == -9, killed.log()
        killed.run()
        assert kills.differences(killed, whole) == []
        assert killed.records()[0].attempt == len(orders) + 1
        begun = [epoch for _, epoch in killed.begun()]
        assert sorted(set(begun)) == list(range(1, 21))
        assert begun == sorted(begun) and len(begun) == 20 + len(orders), "no finished epoch runs twice"


@pytest.mark.parametrize(
    "variant", [each if each == "sgd" else pytest.param(each, marks=pytest.mark.release) for each in VICTIM]
)
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
    attempts = {paths.name: read_record(paths).attempt for paths in broken.run_paths()}
    assert attempts == dict.fromkeys(epochs, 2)
    for paths in broken.run_paths():
        epoch, name = epochs[paths.name], read_record(paths).name
        begun = [number for run, number in broken.begun() if run == name]
        assert begun == [*range(1, epoch + 1), *range(epoch, 13)], "no finished epoch runs twice"
