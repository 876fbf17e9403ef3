"""Tests of the table of `--dry-run`: changed code, and the estimate of the time."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from runmanager.app.display.final_summary import plan_table
from runmanager.cli.main import run_command
from runmanager.launching.plan import Action, Cell, PlannedRun
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.ownership import claim_run


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (1, "About 30s one after the other, judging by the runs of this sweep."),
        (2, "About 20s with 2 at once, judging by the runs of this sweep."),
        (8, "About 10s with 3 at once, judging by the runs of this sweep."),
    ],
)
def test_the_estimate_counts_workers(tmp_path: Path, workers: int, said: str) -> None:
    sweep = SweepPaths(tmp_path / "grid")
    record = RunRecord(name="x", signature="y", status=Status.FINISHED, config={}, run_seconds=10.0)
    claim_run(sweep.run("x"), record)
    cells = [Cell(str(number), f"lr={number}-0", {}, ()) for number in range(3)]
    plan = [PlannedRun(cell, Action.START, "new", sweep.run(cell.name)) for cell in cells]
    out = io.StringIO()
    Console(width=200, file=out).print(plan_table(plan, sweep, workers=workers))
    assert said in out.getvalue()


def test_the_estimate_of_runs_with_more_epochs_is_by_epoch(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "grid")
    record = RunRecord(name="x", signature="y", status=Status.FINISHED, config={}, run_seconds=10.0, epochs_planned=5)
    claim_run(sweep.run("x"), record)
    cell = Cell("z", "lr=1-0", {}, (), epochs=20)
    out = io.StringIO()
    plan = [PlannedRun(cell, Action.START, "new", sweep.run(cell.name))]
    Console(width=200, file=out).print(plan_table(plan, sweep, workers=1))
    assert "About 40s one after the other, judging by the runs of this sweep." in out.getvalue()


def test_the_epochs_of_a_killed_run_give_an_estimate(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "grid")
    record = RunRecord(name="x", signature="y", status=Status.KILLED, config={}, epochs_planned=5)
    folder = claim_run(sweep.run("x"), record)
    for number in (1, 2):
        folder.append(EpochRecord(epoch=number, wall_seconds=10.0, run_seconds=10.0 * number))
    folder.close()
    stored = PlannedRun(Cell("y", "x", {}, (), epochs=5), Action.RESUME, "", sweep.run("x"), stored=record)
    new = PlannedRun(Cell("z", "z", {}, (), epochs=5), Action.START, "new", sweep.run("z"))
    out = io.StringIO()
    Console(width=200, file=out).print(plan_table([stored, new], sweep))
    assert "About 1:20 one after the other, judging by the runs of this sweep." in out.getvalue()


def estimate_of(tmp_path: Path, *configs: dict[str, Any], epochs: int = 0) -> str:
    """The estimate for cells with these settings where a small run took 1 second, and one on a GPU 2 seconds."""
    sweep = SweepPaths(tmp_path / "grid")
    small = {"model": {"name": "mlp", "dropout": 0.0}, "lr": 0.1, "seed": 0, "size": 100, "epochs": 2}
    for name, config, seconds in (("x", small, 1.0), ("y", small | {"device": "cuda"}, 2.0)):
        record = RunRecord(name=name, signature=name, status=Status.FINISHED, config=config, run_seconds=seconds)
        claim_run(sweep.run(name), record)
    cells = [Cell(f"{number}", f"{number}", small | each, (), epochs=epochs) for number, each in enumerate(configs)]
    out = io.StringIO()
    Console(width=200, file=out).print(
        plan_table([PlannedRun(cell, Action.START, "new", sweep.run(cell.name)) for cell in cells], sweep)
    )
    return out.getvalue()


@pytest.mark.parametrize("other", [{"lr": 0.5}, {"seed": 1}, {"model": {"name": "mlp", "dropout": 0.5}}])
def test_a_run_of_as_much_work_is_estimated(tmp_path: Path, other: dict[str, Any]) -> None:
    assert "About 1.0s one after the other, judging by the runs of this sweep." in estimate_of(tmp_path, other)


@pytest.mark.parametrize("other", [{"size": 60_000}, {"model": {"name": "cnn"}}, {"device": "mps"}, {"epochs": 50}])
def test_a_run_of_other_work_is_not_estimated(tmp_path: Path, other: dict[str, Any]) -> None:
    said = "No run like these is measured in this sweep yet, so the time cannot be estimated."
    assert said in estimate_of(tmp_path, other)


def test_known_epochs_scale_the_estimate_and_nothing_else(tmp_path: Path) -> None:
    assert "About 4.0s one after the other, judging" in estimate_of(tmp_path, {"epochs": 8}, epochs=8)
    other = tmp_path / "other"
    assert "cannot be estimated" in estimate_of(other, {"epochs": 8, "size": 60_000}, epochs=8)


def test_what_can_be_estimated_of_a_plan_is_said_with_the_rest(tmp_path: Path) -> None:
    said = (
        "About 2.0s one after the other for 2 of the 3 runs, judging by the runs of this sweep; no run like the others "
        "is measured yet."
    )
    assert said in estimate_of(tmp_path, {"lr": 0.5}, {"lr": 0.6}, {"size": 60_000})


@pytest.fixture
def at_commit(command: Callable[..., Any]) -> Callable[..., Any]:
    """Run a command as if the code were at a given commit."""
    return lambda commit, *words: command(*words, RUNMANAGER_COMMIT=commit * 40)


def test_changed_code_is_reported_and_rerun_on_request(
    at_commit: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    words = ("-m", *tiny, "lr=0.1", "name=changed")
    assert at_commit("a", *words).status == 0
    wider = at_commit("b", *words, "lr=0.1,0.2,0.3", "hydra.launcher.workers=2", "--dry-run")
    assert "finished, with other versions: commit aaaaaaaa, now bbbbbbbb" in wider.out
    assert "3 cells: 1 keep, 2 start" in wider.out
    assert "s with 2 at once, judging" in wider.out
    assert at_commit("b", *words).status == 0
    assert sweep("changed").records[0].attempt == 1
    assert at_commit("b", *words, "rerun_changed=true").status == 0
    (record,) = sweep("changed").records
    assert (record.attempt, record.environment.commit) == (2, "b" * 40)


def test_code_changes_without_a_commit_are_reported_by_every_command(
    at_commit: Callable[..., Any],
    sweep: Callable[[str], Any],
    tiny: tuple[str, ...],
    own_module: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without git, and with git on a tree that had changes from the start."""

    def said(*words: str) -> str:
        assert run_command(words) == 0
        return " ".join(capsys.readouterr().out.split())

    (tmp_path / "part.py").write_text("")
    own_module.write_text(f"import part\n{own_module.read_text()}")
    words = ("-m", *tiny, "model=custom", "model._target_=own.Net", "epochs=6", "name=own")
    assert at_commit("", *words, "lr=0.1").status == 0
    assert at_commit("", *words, "lr=0.1", "--dry-run").out.splitlines()[1].split()[1:] == ["keep", "finished"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNMANAGER_COMMIT", "")
    (run,) = sweep("own").paths.runs.iterdir()
    assert "Its code is the same. Packages and hardware are unchanged." in said("reproduce", str(run), "--trust")
    (tmp_path / "part.py").write_text("changed = True")
    assert "finished, with other versions: code changed (part.py)" in at_commit("", *words, "lr=0.1", "--dry-run").out
    output = at_commit("", *words, "lr=0.1", "rerun_changed=true", "--dry-run").out
    assert "1 cell: 1 start again" in output
    assert "Its code has changed since: part.py." in said("reproduce", str(run), "--trust")
    assert at_commit("", *words, "lr=0.1,0.2").status == 0
    assert "code differs: part.py" in said("compare", "own", "--axis", "lr")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    elsewhere = said("reproduce", str(run), "--trust")
    assert "Whether its code is the same is not known: its files cannot be found from this folder." in elsewhere


def test_a_plan_says_what_it_cannot_answer(command: Callable[..., Any], tiny: tuple[str, ...]) -> None:
    def plan(*words: str) -> str:
        done = command("-m", *tiny, *words, "device=cpu,cuda", "--dry-run")
        assert done.status == 0, done.err
        return " ".join(done.out.split())

    few = plan("lr=0.1,0.2", "epochs=3")
    assert (
        "Speeds cannot be compared along lr: 5 measured epochs a side are needed, and lr=0.1 would have at most 2, as "
        "the first of a run is warm-up; `epochs=7` makes enough, also where the second is." in few
    )
    assert "Nothing can be said of cuda, which this machine lacks: those cells are skipped." in few
    assert "Accuracies and losses can be compared from 3 runs a side on, as with `seed=0,1,2`: lr=0.1 has 1." in few
    enough = plan("seed=0,1,2", "lr=0.1,0.2", "epochs=3")
    assert "cannot be compared" not in enough and "Accuracies" not in enough


def test_names_are_whole_next_to_long_reasons(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "grid")
    names = [f"lr=0.1,batch_size=1000,seed={number}-0123abcd" for number in range(2)]
    plan = [
        PlannedRun(Cell(name, name, {}, ()), Action.START, f"new; continues {name} after {'a' * 40}", sweep.run(name))
        for name in names
    ]
    out = io.StringIO()
    Console(width=80, file=out).print(plan_table(plan, sweep, width=80))
    lines = out.getvalue().splitlines()
    assert all(any(line.startswith(f"{name}  start  new;") for line in lines) for name in names)
    assert max(map(len, lines)) <= 80


def test_a_large_plan_folds_in_a_terminal_and_is_whole_elsewhere(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "grid")
    cells = [Cell(str(number), f"lr={number}-0", {}, ()) for number in range(50)]
    plan = [PlannedRun(cell, Action.START, "new", sweep.run(cell.name)) for cell in cells]
    for limit, rows in ((20, 20), (None, 50)):
        out = io.StringIO()
        Console(width=80, file=out).print(plan_table(plan, sweep, limit=limit))
        lines = out.getvalue().splitlines()
        assert sum(line.startswith("lr=") for line in lines) == rows
        assert ("… and 30 more; the same command with `| cat` shows all." in lines) == (limit is not None)
        assert "50 cells: 50 start" in lines


def test_the_dry_run_of_a_duel_is_about_its_sides(command: Callable[..., Any], tiny: tuple[str, ...]) -> None:
    sides = 'hydra.sweeper.sides=["lr=0.1","lr=0.2"]'
    done = command("-m", "measure=paired", *tiny, sides, "--dry-run")
    assert done.status == 0, done.err
    assert "2 sides: 2 start" in done.out
    assert all(word not in done.out for word in ("sweep", "cells", "Accuracies", "estimated"))


def test_another_experiment_in_a_named_sweep_is_said(
    command: Callable[..., Any], tiny: tuple[str, ...], tmp_path: Path
) -> None:
    words = ("-m", *tiny, "name=mixed")
    assert command(*words, "lr=0.1").status == 0
    said = (
        "Another experiment joins outputs/mixed: dataset.name is digits and was fake. Another `name` keeps them apart."
    )
    other = command(*words, "lr=0.1", "dataset=digits", "--dry-run")
    assert said in other.out.splitlines(), other.err
    for more in (("lr=0.1,0.2",), ("lr=0.1", "epochs=3"), ("lr=0.1", "dataset=fake,digits")):
        assert "Another experiment" not in command(*words, *more, "--dry-run").out
