"""More epochs for the finished cells of a sweep of the built-in job, by real commands."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runmanager import Sweep
from runmanager.app.reproduce_command import reproduce
from runmanager.cli.main import run_command
from runmanager.errors import UsageError
from runmanager.records.storage.reader import read_epochs
from runmanager.results.load.loader import read_summary
from runmanager.results.tables.results_table import result_rows

from ..conftest import sweep_in

GRID = ("-m", "lr=0.05,0.01", "scheduler=constant,cosine")
SCHEDULE = "the learning rates of cosine depend on the number of epochs"


@dataclass(frozen=True)
class Extended:
    """A grid with 3 epochs and then 6, in one sweep, and one with 6 epochs at once."""

    folder: Path
    plan: Any
    done: Any
    sweep: Any
    whole: Any


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny: tuple[str, ...], rerun: Callable[..., Any]) -> Any:
    """Run a command on the tiny job in one folder."""
    folder = tmp_path_factory.mktemp("extended")

    class Command:
        words = ()

        def __init__(self) -> None:
            self.folder = folder

        def __call__(self, *words: str) -> Any:
            return rerun(self, *GRID, *tiny, *words)

    return Command()


@pytest.fixture(scope="module")
def extended(run: Any) -> Extended:
    assert run("epochs=3", "name=more").status == 0
    plan = run("epochs=6", "name=more", "--dry-run")
    done = run("epochs=6", "name=more")
    whole = run("epochs=6", "name=whole")
    assert (plan.status, done.status, whole.status) == (0, 0, 0), done.err + whole.err
    return Extended(run.folder, plan, done, sweep_in(run.folder, "more"), sweep_in(run.folder, "whole"))


def test_the_plan_says_which_cells_continue_and_why_others_do_not(extended: Extended) -> None:
    lines = [line.rstrip() for line in extended.plan.out.splitlines()]
    continued = [line for line in lines if "new; continues " in line and line.endswith("after epoch 3")]
    assert len(continued) == 2 and all(" continue " in line for line in continued)
    assert len([line for line in lines if "new; does not continue" in line and SCHEDULE in line]) == 2
    assert "4 cells: 2 continue, 2 start" in extended.plan.out
    assert sum("new; continues" in line for line in extended.done.out.splitlines()) == 2, "a real command says so too"


def test_new_cells_of_a_sweep_are_also_named_by_what_earlier_ones_differ_in(extended: Extended, run: Any) -> None:
    named = [line.split()[0].rpartition("-")[0] for line in extended.plan.out.splitlines() if line.startswith("lr=")]
    assert named[0] == "lr=0.05,scheduler=constant,epochs=6"
    planned = run("lr=0.01", "scheduler=constant", "seed=7,8", "epochs=3", "name=more", "--dry-run")
    assert "\nlr=0.01,scheduler=constant,seed=7,epochs=3-" in planned.out
    assert "\nlr=0.05,scheduler=constant-" in run("epochs=3", "name=more", "--dry-run").out, "the first name stays"


def test_the_longer_runs_equal_those_of_all_epochs_at_once(extended: Extended) -> None:
    for schedule in ("constant", "cosine"):
        for lr in (0.05, 0.01):
            settings = {"lr": lr, "scheduler.name": schedule, "epochs": 6}
            longer, whole = extended.sweep.record(**settings), extended.whole.record(**settings)
            assert longer.signature == whole.signature
            assert extended.sweep.numbers()[longer.name] == extended.whole.numbers()[whole.name]
            shorter = extended.sweep.record(**{**settings, "epochs": 3})
            assert (longer.continued_from or None) == (shorter.name if schedule == "constant" else None)
            config = extended.sweep.paths.run(longer.name).config.read_text()
            assert "continue" not in config, "how a run began is not a setting"


def test_people_see_the_longer_run_and_files_have_both(
    extended: Extended, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    capfd.readouterr()

    def table(*words: str) -> str:
        assert run_command(["table", str(extended.sweep.paths.root), *words]) == 0
        return capfd.readouterr().out

    note = "2 runs with fewer epochs are left out, as longer runs continue them"
    assert note in " ".join(extended.done.out.split())
    assert len(extended.sweep.rows()) == 8 and len(extended.sweep.rows("epochs.csv")) == 4 * 3 + 4 * 6
    assert f"{note}; --all shows them." in " ".join(table().split())
    shown = {words: table(*words).count("finished") for words in [(), ("--all",), ("--where", "epochs==3")]}
    assert shown == {(): 6, ("--all",): 8, ("--where", "epochs==3"): 4}
    whole = str(extended.whole.paths.root)
    shown = {words: table(whole, *words).count("finished") for words in [(), ("--all",)]}
    num_whole = len(extended.whole.rows())
    assert shown == {(): 6 + num_whole, ("--all",): 8 + num_whole}, "of two sweeps in one table too"
    assert len(json.loads(table("--format", "json"))) == 8
    page = (extended.sweep.paths.root / "report.html").read_text()
    assert f"{note}; the CSV files of the sweep have them." in page
    assert "The best of 6 curves goes " in page, "figures leave out what the tables leave out"


def test_a_comparison_times_each_epoch_once(extended: Extended) -> None:
    found = Sweep(extended.sweep.paths.root).compare("lr", metric="epoch_seconds")
    pairs = {(row["settings.epochs"], row["scheduler.name"]): row for _, row in found.iterrows()}
    longer = extended.sweep.record(**{"lr": 0.05, "scheduler.name": "constant", "epochs": 6})
    measured = [each.epoch for each in read_epochs(extended.sweep.paths.run(longer.name)) if not each.warmup]
    assert set(measured) <= {5, 6}, "1 to 3 are copied, 4 warms up"
    assert pairs[6, "constant"]["baseline_epochs"] == len(measured)
    found = Sweep(extended.sweep.paths.root).compare("lr", metric="run_seconds")
    pairs = {(row["settings.epochs"], row["scheduler.name"]): row for _, row in found.iterrows()}
    assert pairs[6, "constant"]["verdict"] == "not measured" and pairs[6, "constant"]["baseline_runs"] == 0
    assert pairs[3, "constant"]["baseline_runs"] == pairs[6, "cosine"]["baseline_runs"] == 1


def test_a_rerun_keeps_all_runs_and_with_never_continues_none(extended: Extended, run: Any) -> None:
    assert "4 cells: 4 keep" in run("epochs=6", "name=more", "--dry-run").out
    again = run("epochs=9", "name=more", "resume=never", "--dry-run").out
    assert "4 cells: 4 start" in again and "continue" not in again


def test_the_sweeper_alone_says_what_a_cell_continues(run: Any) -> None:
    done = run("epochs=6", "name=other", "hydra.sweeper.continues=run-1")
    assert done.status == 2 and len(done.faults) == 1
    assert "`hydra.sweeper.continues` must be left to the sweeper, got run-1" in done.err
    assert not (run.folder / "outputs" / "other").exists()


def test_a_sweep_that_began_under_earlier_defaults_is_recognised(
    command: Callable[..., Any], sweep: Callable[[str], Any]
) -> None:
    words = ("-m", "dataset=digits", "dataset.size=60", "model=logistic", "batch_size=60", "device=cpu")
    assert command(*words, "dataset.val_size=null", "epochs=5", "lr=0.1", "name=old").status == 0
    done = command(*words, "lr=0.1,0.2", "name=old")
    assert done.status == 0, done.err
    said = " ".join(done.out.split())
    assert "This sweep validates on all validation images, as was the default when it began;" in said
    assert "with `dataset.size=60` a new sweep takes `dataset.val_size=10`." in said
    assert "1 cell of this sweep has 5 epochs, once the default, which is 8 now: longer runs continue them; " in said
    old = sweep("old")
    assert {each.settings["dataset.val_size"] for each in old.records} == {None}
    shorter, longer, other = (old.record(lr=lr, epochs=epochs) for lr, epochs in ((0.1, 5), (0.1, 8), (0.2, 8)))
    assert longer.continued_from == shorter.name and not other.continued_from
    assert all(reproduce(record).is_proved for record in (shorter, other))
    again = command(*words, "lr=0.1,0.2", "name=old", "--dry-run").out
    assert "2 cells: 2 keep" in again and "once the default" not in again
    assert command(*words, "epochs=1", "name=new").status == 0
    assert sweep("new").record().settings["dataset.val_size"] == 10


def test_a_sweep_of_random_images_keeps_the_validation_images_that_it_began_with(
    command: Callable[..., Any], sweep: Callable[[str], Any]
) -> None:
    words = ("-m", "dataset=fake", "dataset.in_shape=[1,2,2]", "model=logistic", "epochs=1", "batch_size=60")
    assert command(*words, "dataset.size=60", "dataset.val_size=1000", "lr=0.1", "device=cpu", "name=old").status == 0
    done = command(*words, "dataset.size=60", "lr=0.1,0.2", "device=cpu", "name=old")
    assert done.status == 0, done.err
    said = " ".join(done.out.split())
    assert "This sweep validates on 1,000 validation images, as was the default when it began;" in said
    assert "with `dataset.size=60` a new sweep takes `dataset.val_size=6`." in said
    old = sweep("old")
    assert [each.settings["dataset.val_size"] for each in old.records] == [1000, 1000]
    assert all(reproduce(record).is_proved for record in old.records)
    assert command(*words, "dataset.size=60,4", "lr=0.1", "device=cpu", "name=new").status == 0
    sizes = {each.settings["dataset.size"]: each.settings["dataset.val_size"] for each in sweep("new").records}
    assert sizes == {60: 6, 4: 1}


def test_a_setting_that_follows_from_another_splits_no_pairs_until_a_command_gives_it(
    command: Callable[..., Any], sweep: Callable[[str], Any]
) -> None:
    words = ("-m", "dataset=fake", "dataset.in_shape=[1,2,2]", "model=logistic", "epochs=1", "batch_size=60")
    words = (*words, "device=cpu", "name=sizes")
    assert command(*words, "dataset.size=60,40").status == 0
    found = Sweep(sweep("sizes").paths.root)
    (row,) = found.compare("dataset.size").to_dict("records")
    assert "too few epochs" in row["reason"]
    sizes = {row["dataset.size"]: row["dataset.val_size"] for row in sweep("sizes").rows()}
    assert sizes == {"60": "6", "40": "4"}
    assert {row["dataset.val_size"] for row in sweep("sizes").rows("epochs.csv")} == {"6", "4"}
    table = result_rows(*read_summary(sweep("sizes").paths))
    assert "dataset.size" in table.shown and "dataset.val_size" not in table.shown
    with pytest.raises(UsageError, match=r"'dataset\.val_size', which follows from others; what varies here: data"):
        found.compare("dataset.val_size")
    assert len(found.compare("dataset.size+dataset.val_size")) == 1
    assert command(*words, "dataset.size=30").status == 0
    assert sweep("sizes").record(**{"dataset.size": 30}).name.startswith("dataset.size=30-")
    assert command(*words, "dataset.size=20", "dataset.val_size=9").status == 0
    assert len(Sweep(sweep("sizes").paths.root).compare("dataset.size")) > 2
    assert command(*words, "dataset.size=60,40").status == 0
    assert len(Sweep(sweep("sizes").paths.root).compare("dataset.size")) > 2
