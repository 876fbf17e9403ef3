"""`--until-decided` of a script, by real commands: which seeds run, when it ends, and what it refuses."""

from pathlib import Path

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep
from runmanager.records.sweep.sweep_record import read_sweep_record

from ....file_schemas import check_sweep_files
from ....processes import wait_for_output, wait_until
from .conftest import Folder

# The loss is that of the learning rate, but for what the seed and the cell change; `alike` is the same for all rates.
SCRIPT = """
import argparse, random, time
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int, default=0)
given = parser.parse_args()
with open("began.txt", "a") as file:
    file.write(f"{given.lr:g} {given.seed}\\n")
while Path("wait").exists():
    time.sleep(0.05)
draw = random.Random(str((given.lr, given.seed))).gauss
print("val_loss", (1 if Path("alike").exists() else given.lr) + draw(0, 0.01), flush=True)
"""
LATE = ("sweep", "--until-decided", "--metric", "val_loss", "--name", "decided", "train.py")


def begun(folder: Folder) -> list[tuple[float, int]]:
    file = folder.path / "began.txt"
    words = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(float(lr), int(seed)) for lr, seed in words]


def test_seeds_run_only_where_the_best_is_open_and_the_command_says_what_it_saved(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    words = (*LATE, "--workers", "2", "lr=1,1.01,2,3", "seed=0,1,2,3,4,5,6,7,8,9")
    plan = folder.run(*words, "--dry-run")
    assert plan.status == 0 and "first two of 10 seeds" in plan.out and not begun(folder), plan.err
    done = folder.run(*words)
    assert done.status == 0, done.err
    cells = begun(folder)
    assert set(cells[:8]) == {(lr, seed) for lr in (1, 1.01, 2, 3) for seed in (0, 1)}
    of_far_ones = [seed for lr, seed in cells if lr >= 2]
    assert max(of_far_ones) < 4  # their seeds end where they are shown to be worse
    assert max(seed for lr, seed in cells if lr < 2) > max(of_far_ones)
    assert f"{len(cells)} of the 40 runs of the full grid ({40 - len(cells)} saved)" in done.out
    record = read_sweep_record(SweepPaths(folder.path / "outputs" / "decided"))
    assert record is not None and len(record.cells) == len(cells) and str(record.decision) in done.out
    assert check_sweep_files(folder.path / "outputs" / "decided") >= 3
    report = (folder.path / "outputs" / "decided" / "report.html").read_text()
    assert f"{40 - len(cells)} saved" in report

    again = folder.run(*words)
    assert again.status == 0 and str(record.decision) in again.out and begun(folder) == cells


def test_cells_that_are_alike_stay_open_until_the_most_runs(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    folder.write("alike", "")
    done = folder.run(*LATE, "--max-runs", "14", "--workers", "2", "lr=1,2,3", "seed=range(0,10)")
    assert done.status == 0, done.err
    assert len(begun(folder)) == 14
    said = "Not decided with 14 of the 30 runs of the full grid (16 saved), as --max-runs allows no more: still open"
    assert said in done.out.replace("\n", " "), done.out
    done = folder.run(*LATE[:-2], "all", "train.py", "--workers", "2", "lr=1,2,3", "seed=0,1,2")
    said = "Not decided with 9 of the 9 runs of the full grid (0 saved), as all seeds have run: still open"
    assert said in done.out.replace("\n", " "), done.out


def test_a_killed_command_goes_on_with_the_same_question(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    folder.write("wait", "")
    words = (*LATE, "--workers", "2", "lr=1,2", "seed=0,1,2,3,4")
    killed = folder.start(*words)
    wait_until(lambda: len(begun(folder)) == 2, "two cells that have begun")
    killed.kill()
    wait_for_output(killed)
    (folder.path / "wait").unlink()
    done = folder.run(*words)
    assert done.status == 0 and "Decided with 6 of the 10 runs" in done.out, done.out + done.err
    runs = read_sweep(SweepPaths(folder.path / "outputs" / "decided")).runs
    assert len(runs) == 6 and len(begun(folder)) == 8  # the killed ones twice


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--until-decided", "lr=1,2"), "`--until-decided` must be given with a list of seeds"),
        (("--until-decided", "--order", "grid", "seed=0,1"), "`--order` must be left out with `--until-decided`"),
        (("--max-runs", "3", "seed=0,1"), "`--max-runs` must be given with `--until-decided`, got 3"),
        (("--until-decided", "--max-runs", "3", "lr=1,2", "seed=0,1"), "`--max-runs` must be at least 4"),
        (("--until-decided", "--search", "tpe", "--trials", "3", "lr=1,2"), "`--search` must be left out with"),
    ],
)
def test_what_it_refuses(words: tuple[str, ...], said: str, folder: Folder, tmp_path: Path) -> None:
    folder.write("train.py", SCRIPT)
    done = folder.run("sweep", "train.py", *words)
    assert done.status == 2 and said in done.err, done.err
    assert not (tmp_path / "outputs").exists() and not begun(folder)
