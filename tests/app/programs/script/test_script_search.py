"""A search over a script's settings, by real commands: trials, seeds, what is refused, kills and second drivers."""

import signal
from pathlib import Path

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.records.sweep.sweep_record import read_sweep_record

from ....file_schemas import check_sweep_files
from ....processes import wait_for_output, wait_until
from .conftest import Folder

pytest.importorskip("optuna")

# A cell waits while the file `wait` exists, after it has noted that it began.
SCRIPT = """
import argparse, math, os, time
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--seed", type=int, default=0)
given = parser.parse_args()
with open("began.txt", "a") as file:
    file.write(f"{given.lr} {given.batch_size} {given.seed}\\n")
while Path("wait").exists():
    time.sleep(0.05)
print("loss:", (math.log10(given.lr) + 2) ** 2 + abs(given.batch_size - 16) / 100 + given.seed / 1000)
"""
SCALAR = ("--scalar", r"loss=loss: (\S+)")
SEARCH = (*SCALAR, "--search", "tpe", "--name", "found")
LR = "lr=loguniform(1e-4,1e-1)"


def runs_of(folder: Folder) -> list[StoredRun]:
    return list(read_sweep(SweepPaths(folder.path / "outputs" / "found")).runs)


def rates(folder: Folder) -> set[float]:
    return {run.settings["lr"] for run in runs_of(folder)}


def begun(folder: Folder) -> list[str]:
    file = folder.path / "began.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_trials_are_counted_with_those_of_a_grid_and_each_has_all_seeds(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    grid = ("lr=0.1,0.02,0.5", "batch_size=16", "seed=0,1")
    assert folder.run("sweep", *SCALAR, "--name", "found", "train.py", *grid).status == 0
    words = ("train.py", LR, "batch-size=16,32", "seed=0,1", "--exclude", "batch_size>16 and lr<0.01")
    plan = folder.run("sweep", *SEARCH, "--trials", "6", "--dry-run", *words)
    assert plan.status == 0 and "Search (tpe): 6 trials, 3 tried already" in plan.out, plan.err
    assert "lr from 0.0001 to 0.1 (by its logarithm); batch-size of 16, 32" in plan.out and "\\n" not in plan.out
    assert "1 trial of the sweep has other settings than this space" in plan.out and len(begun(folder)) == 6

    done = folder.run("sweep", *SEARCH, "--trials", "6", "--workers", "2", *words)
    assert done.status == 0, done.err
    cells = {(run.settings["lr"], run.settings["batch-size"], run.settings["seed"]) for run in runs_of(folder)}
    points = {cell[:2] for cell in cells}
    assert cells == {(*point, seed) for point in points for seed in (0, 1)} and len(points) == 6
    assert not [lr for lr, size in points if size > 16 and lr < 0.01]
    assert check_sweep_files(folder.path / "outputs" / "found") >= 5

    again = folder.run("sweep", *SEARCH, "--trials", "6", *words)
    assert again.status == 0 and "6 tried already" in again.out and len(begun(folder)) == 12


def test_a_killed_search_goes_on_and_a_finite_space_is_exhausted(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    folder.write("wait", "")
    words = (
        "sweep",
        *SEARCH,
        "--trials",
        "50",
        "--workers",
        "2",
        "train.py",
        "lr=0.1,0.01,0.001",
        "batch-size=range(16,33,16)",
    )
    killed = folder.start(*words)
    wait_until(lambda: len(begun(folder)) == 2, "two cells that have begun")
    killed.kill()
    wait_for_output(killed)
    (folder.path / "wait").unlink()
    assert len(begun(folder)) == 2  # each slot has one: which cell is next is decided when one is free

    done = folder.run(*words)
    assert done.status == 0, done.err
    assert "the search ends after 6 trials" in done.out.lower()
    assert len(runs_of(folder)) == 6 and {run.status for run in runs_of(folder)} == {Status.FINISHED}
    assert len(begun(folder)) == 8  # the killed cells were run again


def test_two_drivers_share_a_search(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    folder.write("wait", "")
    words = ("sweep", *SEARCH, "--trials", "6", "train.py", LR)
    drivers = [folder.start(*words) for _ in range(2)]
    wait_until(lambda: len(begun(folder)) == 2, "a cell of each driver")
    (folder.path / "wait").unlink()
    ends = [wait_for_output(each) for each in drivers]
    assert [each.returncode for each in drivers] == [0, 0], ends
    assert len(rates(folder)) == len(begun(folder)) == 6
    assert all("6 runs: 6 finished" in out for out, _ in ends), ends


def test_an_interrupted_search_starts_no_cell_and_names_the_command(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    folder.write("wait", "")
    process = folder.start("sweep", *SEARCH, "--trials", "6", "train.py", LR)
    wait_until(lambda: begun(folder), "a cell that has begun")
    process.send_signal(signal.SIGINT)
    out, err = wait_for_output(process)
    assert process.returncode == 130 and "To resume:" in out and "--search tpe" in out, err
    record = read_sweep_record(SweepPaths(folder.path / "outputs" / "found"))
    assert record is not None and len(record.cells) == len(begun(folder)) == 1


def test_a_search_without_values_to_learn_from_ends(folder: Folder) -> None:
    folder.write("train.py", "import sys\nprint(sys.argv)\n")
    done = folder.run("sweep", "--search", "tpe", "--trials", "4", "--name", "found", "train.py", LR)
    assert done.status == 1 and "The search must have values to learn from, got no known metric" in done.err
    assert len(runs_of(folder)) == 1
    assert folder.run("sweep", "--search", "random", "--trials", "2", "--name", "found", "train.py", LR).status == 0
    assert len(runs_of(folder)) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--search", "tpe", LR), "`--search` must be given with `--trials` or `--max-seconds`, got neither"),
        (("--trials", "3", "lr=0.1,0.2"), "`--trials` must be given with `--search`, got 3"),
        (("--search", "tpe", "--trials", "0", LR), "`--trials` must be above 0, got 0"),
        (("--search", "grid", "--trials", "3", LR), "`--search` must be one of tpe, random, got grid"),
        (
            ("--search", "tpe", "--trials", "3", "--order", "grid", LR),
            "`--order` must be left out of a search, got grid",
        ),
        (("--search", "tpe", "--trials", "3", "--zip", "lr,batch-size", LR), "`--zip` must be left out of a search"),
        (("--search", "tpe", "--trials", "3", "lr=0.1"), "`--search` must have a setting with several values"),
        (("--search", "tpe", "--trials", "3", "rate=uniform(0,1)"), "`rate` must be a flag of train.py"),
    ],
)
def test_what_a_search_refuses(words: tuple[str, ...], said: str, folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    done = folder.run("sweep", "train.py", *words)
    assert done.status == 2 and said in done.err, done.err
    assert not (folder.path / "outputs").exists()


def test_a_single_run_is_no_search(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    done = folder.run("run", "train.py", "--search", "tpe", "--trials", "3", LR)
    assert done.status == 2 and "`--search` must be left out in a single run" in done.err


def test_no_trial_begins_after_the_time(folder: Folder, tmp_path: Path) -> None:
    folder.write("train.py", SCRIPT)
    done = folder.run("sweep", *SEARCH, "--max-seconds", "1e-9", "train.py", LR)
    assert done.status == 0 and "none begins after 1e-09 s" in done.out and not begun(folder), done.err
