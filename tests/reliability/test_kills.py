"""A short form of `make test-kill`, and a check that the harness detects differences."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch


def test_repeatedly_killed_sweeps_end_like_undisturbed_ones(killer: Any) -> None:
    tally = killer.run(3)
    assert dict(tally.kills) == {"driver": 1, "run": 1, "group": 1}
    assert (tally.lost, tally.run_twice, tally.untrue, tally.differing) == (0, 0, [], [])


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
    (path,) = (each for each in whole.run_paths() if each.name == first.rpartition(" ")[0])
    path.record.write_text(path.record.read_text().replace('"finished"', '"failed"', 1))
    untrue = list(whole.untrue_states({path.name: {"killed (signal)"}}))
    name_of_second = second.rpartition(" ")[0]
    states = {f"{path.name} reads failed (None)", f"{name_of_second} reads finished (None)"}
    assert {each.partition(": ")[2] for each in untrue} == states


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
    assert lines[2].startswith(
        "| 3 SIGKILLs (2 of the driver, 1 of a run, 0 of the driver's process group) in 2 sweeps"
    )
    assert "--kills 3 --seed 4" in lines[2]
    assert lines[-1] == "More."


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
