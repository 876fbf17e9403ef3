"""TensorBoard's log directory: runs under short names, read by TensorBoard's loader."""

import re
import shutil
from pathlib import Path

import pytest
import torch

from runmanager import RunManager
from runmanager.errors import RecordError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import run_names
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells
from runmanager.tracking.tensorboard.event_writer import EventWriter
from runmanager.tracking.tensorboard.logdir import SweepLogdir

from ..board import CELLS, LOADER, Board, begin
from ..conftest import event_files


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path / "outputs" / "grid")


@pytest.fixture
def served(sweep: SweepPaths, tmp_path: Path) -> SweepLogdir:
    (tmp_path / "served").mkdir()
    return SweepLogdir(sweep, tmp_path / "served")


def test_tensorboard_on_the_sweeps_own_folder_shows_all_settings_and_tags(sweep: SweepPaths) -> None:
    begin(sweep, {"lr": 0.1}, {"width": 8})
    board = Board(sweep.runs)
    assert board.load() == run_names(sweep)
    assert set(board.hparams()) == {"lr", "width", "device"}
    assert {"train/loss", "val/loss", "time/epoch_seconds", "time/eval_seconds"} <= set(board.metrics())


def test_runs_are_links_with_short_names(sweep: SweepPaths, served: SweepLogdir) -> None:
    begin(sweep, {"lr": 0.1, "batch_size": 5}, {"lr": 0.01, "batch_size": 5})
    served.refresh()
    assert Board(served.root).load() == ["lr=0.01", "lr=0.1"]
    links = [path for path in served.root.rglob("*") if path.is_symlink()]
    assert {path.resolve() for path in links} == {
        path.resolve() for run in sweep.runs.iterdir() for path in run.glob("events*")
    }


def test_runs_that_start_later_are_added(sweep: SweepPaths, served: SweepLogdir) -> None:
    first, second, third = ({"lr": lr} for lr in (0.1, 0.01, 0.001))
    begin(sweep, first, second)
    served.refresh()
    board = Board(served.root)
    assert board.load() == ["lr=0.01", "lr=0.1"]
    served.refresh()  # no new runs
    begin(sweep, third)
    served.refresh()
    assert board.load() == ["lr=0.001", "lr=0.01", "lr=0.1"]
    assert board.sorted_by("lr") == [0.001, 0.01, 0.1]  # the experiment declared before does not hide it


def test_a_new_axis_renames_the_runs(sweep: SweepPaths, served: SweepLogdir) -> None:
    begin(sweep, {"lr": 0.1, "seed": 0}, {"lr": 0.01, "seed": 0})
    served.refresh()
    board = Board(served.root)
    board.load()
    begin(sweep, {"lr": 0.1, "seed": 1})
    served.refresh()
    assert board.load() == ["lr=0.01,seed=0", "lr=0.1,seed=0", "lr=0.1,seed=1"]
    assert board.sorted_by("seed") == [0, 0, 1]


def test_an_earlier_attempt_is_not_shown(sweep: SweepPaths, served: SweepLogdir) -> None:
    with (
        pytest.raises(ValueError, match="no"),
        RunManager(sweep.root, console=False).run({"lr": 1, "device": "cpu"}, torch.nn.Linear(1, 1), LOADER),
    ):
        raise ValueError("no")
    (run,) = sweep.runs.iterdir()
    (first,) = run.glob("events*")
    first.rename(first.with_name("events.out.tfevents.1700000000.host.1.0"))  # as if it had started long ago
    served.refresh()
    begin(sweep, {"lr": 1})
    served.refresh()
    assert Board(served.root).load() == ["grid"]
    (again,) = event_files(sweep.run(run.name))
    assert [path.resolve() for path in served.root.rglob("events*") if path.is_symlink()] == [again.resolve()]


def test_files_of_the_program_and_of_what_it_printed_are_linked_too(sweep: SweepPaths, served: SweepLogdir) -> None:
    begin(sweep, {"lr": 0.1}, {"lr": 0.2})
    (run,) = (sweep.run(name) for name in run_names(sweep) if "lr_0.1" in name)
    run.heartbeat.touch()  # as if it were still running
    served.refresh()
    board = Board(served.root)
    assert board.load() == ["lr=0.1", "lr=0.2"]
    for folder in ("printed", "logs/version_0", "attempts/1"):
        (run.root / folder).mkdir(parents=True)
        writer = EventWriter(run.root / folder)
        writer.scalars({folder: 1.0}, 1)
        writer.close()
    served.refresh()
    assert board.load() == ["lr=0.1", "lr=0.1/logs/version_0", "lr=0.1/printed", "lr=0.2"]


def test_a_sweep_without_started_runs_is_empty(sweep: SweepPaths, served: SweepLogdir) -> None:
    write_cells(sweep, [plan_cell("a" * 64, "lr=1-aaaaaaaa", {"lr": 1})], SweepCommand(["x"], axes={"lr": [1]}))
    served.refresh()
    assert Board(served.root).load() == []


def test_a_damaged_plan_keeps_the_links(sweep: SweepPaths, served: SweepLogdir) -> None:
    begin(sweep, {"lr": 0.1}, {"lr": 0.01})
    served.refresh()
    sweep.record.write_text("{")
    with pytest.raises(RecordError, match=re.escape(str(sweep.record))):
        served.refresh()
    assert Board(served.root).load() == ["lr=0.01", "lr=0.1"]


def test_a_removed_run_loses_its_link(sweep: SweepPaths, served: SweepLogdir) -> None:
    begin(sweep, *CELLS)
    served.refresh()
    before = {folder.name for folder in served.root.iterdir()}
    shutil.rmtree(sweep.run(run_names(sweep)[-1]).root)
    served.refresh()
    shown = {folder.name for folder in served.root.iterdir()}
    assert len(before - shown) == 1
    assert all(link.exists() for folder in served.root.iterdir() for link in folder.iterdir())
