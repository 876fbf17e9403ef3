"""Pruning in a search over a script's settings, by real commands: what ends early, what is kept, and what ranks how."""

import json
from typing import Any

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.records.storage.run_end import noted_stop

from ....file_schemas import check_sweep_files
from ....processes import wait_for_output
from .conftest import MAIN, Folder

pytest.importorskip("optuna")

# A cell with lr from 10 on waits after its values until it is stopped, or the file `go` is there. The last value of all
# is larger than those before, so that the value at which a run was pruned would be the best.
SCRIPT = """
import argparse, os, signal, sys, time
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
given = parser.parse_args()
def stop(*_):
    print("asked to end", flush=True)
    if not Path("stubborn").exists():
        sys.exit(0)
signal.signal(signal.SIGTERM, stop)
for epoch in range(2):
    LOG(epoch, given.lr + epoch / 100)
while given.lr >= 10 and not Path("go").exists():
    time.sleep(0.05)
LOG(2, 100 * given.lr)
END()
"""
PRINTED = """
LOG, END = lambda epoch, loss: print(f"epoch {epoch} val_loss {loss}", flush=True), lambda: None
"""
EVENTS = """
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(os.environ["RUNMANAGER_RUN"])
def LOG(epoch, loss):
    value = Summary.Value(tag="val_loss", simple_value=loss)
    writer.add_event(Event(step=100 * epoch, wall_time=time.time(), summary=Summary(value=[value])))
    writer.flush()
END = writer.close
"""
OURS = """
import runmanager
run = runmanager.start_run()
epochs = iter(run.epochs(3))
def LOG(epoch, loss):
    next(epochs)
    run.log(val_loss=loss)
END = lambda: next(epochs, None)
"""
SEARCH = ("--search", "random", "--name", "found", "--metric", "val_loss")


def script(log: str) -> str:
    return SCRIPT.replace("for epoch in range(2):", f"{log}\nfor epoch in range(2):", 1)


def runs_of(folder: Folder) -> dict[float, StoredRun]:
    return {run.settings["lr"]: run for run in read_sweep(SweepPaths(folder.path / "outputs" / "found")).runs}


def ranked(folder: Folder) -> Any:
    done = folder.run("best", "found", "--format", "json")
    assert done.status == 0, done.err
    return json.loads(done.out)


@pytest.mark.parametrize(
    ("log", "method", "complete", "unpromising"),
    [  # by median a run is pruned once five are complete, by hyperband the fourth of a sweep at its first value
        pytest.param(PRINTED, "median", (1, 2, 3, 4, 5), (10, 11), id="printed"),
        pytest.param(EVENTS, "hyperband", (1, 2, 3), (10,), id="event file"),
        pytest.param(OURS, "hyperband", (1, 2, 3), (10,), id="our epochs"),
    ],
)
def test_an_unpromising_run_is_pruned_ranks_last_and_runs_to_its_end_when_asked_for(
    log: str, method: str, complete: tuple[int, ...], unpromising: tuple[int, ...], folder: Folder
) -> None:
    folder.write("train.py", script(log))
    grid = ("sweep", "--name", "found", "--workers", "2", "train.py")
    assert folder.run(*grid, f"lr={','.join(map(str, complete))}").status == 0
    space = f"lr={','.join(map(str, (*complete, *unpromising)))}"
    asked = ("--trials", str(len(complete) + len(unpromising)), "--prune", method)
    words = ("sweep", *SEARCH, *asked, "--workers", "2", "train.py", space)
    done = folder.run(*words)
    assert done.status == 0 and f"pruned by {method}" in done.out, done.err
    runs = runs_of(folder)
    assert {lr for lr, run in runs.items() if run.record.reason is Reason.PRUNED} == {*unpromising}
    assert {run.status for run in runs.values()} == {Status.FINISHED}
    assert "val_loss 10" in runs[10].record.message and f"by {method}" in runs[10].record.message
    assert "asked to end" in runs[10].paths.log.read_text()
    assert check_sweep_files(folder.path / "outputs" / "found") >= len(runs)

    best = ranked(folder)
    assert best["best"]["settings"] == {"lr": 1} and best["num_cells"] == len(complete)
    table = folder.run("table", "found", "--format", "csv", "--sort", "val_loss")
    rows = [line for line in table.out.splitlines() if "finished" in line]
    assert ["pruned" in line for line in rows] == [False] * len(complete) + [True] * len(unpromising), table.out

    assert folder.run(*words).status == 0  # kept as pruned
    assert {run.record.attempt for run in runs_of(folder).values()} == {1}
    folder.write("go", "")
    assert folder.run(*grid, "lr=10").status == 0
    again = runs_of(folder)
    assert again[10].record.attempt == 2 and again[10].record.reason is None
    assert ranked(folder)["num_cells"] == len(complete) + 1


def test_a_run_that_does_not_end_is_killed_after_its_limit(folder: Folder) -> None:
    folder.write("train.py", script(PRINTED))
    folder.write("stubborn", "")
    assert folder.run("sweep", "--name", "found", "train.py", "lr=1,2,3,4,5").status == 0
    words = ("sweep", *SEARCH, "--trials", "6", "--prune", "hyperband", "train.py", "lr=1,2,3,4,5,10")
    at_once = "from runmanager.app.driver import search\nsearch._LIMIT_SECONDS = 1.0\n"
    process = folder.start(*words, main=at_once + MAIN)
    out, err = wait_for_output(process)
    assert process.returncode == 0, err + out
    pruned = [run for run in runs_of(folder).values() if run.record.reason is Reason.PRUNED]
    assert pruned and "asked to end" in pruned[0].paths.log.read_text()
    noted = noted_stop(pruned[0].paths, 1)
    assert noted is not None and noted.outcome == pruned[0].record.outcome


def test_what_pruning_needs(folder: Folder) -> None:
    folder.write(
        "train.py",
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\n"
        "print('val_loss', p.parse_args().lr)\n",
    )
    alone = folder.run("sweep", "--prune", "median", "train.py", "lr=1,2")
    assert alone.status == 2 and "`--prune` must be given with `--search`, got median" in alone.err
    bad = folder.run("sweep", "--search", "grid", "--trials", "3", "--prune", "best", "train.py", "lr=1,2")
    assert bad.status == 2 and "`--prune` must be one of median, hyperband, got best" in bad.err
    assert "`--search` must be one of tpe, random, got grid" in bad.err and "--trials" not in bad.err
    done = folder.run("sweep", *SEARCH, "--trials", "4", "--prune", "median", "train.py", "lr=1,2,3,4")
    assert done.status == 0, done.err
    assert {run.record.reason for run in runs_of(folder).values()} == {None}
