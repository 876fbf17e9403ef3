"""Real searches: the time in which slots idle between trials, and the epochs that pruning saves on MNIST.

`python -m benchmarks.search_runs --write` takes some minutes and writes its table to docs/benchmarks.md.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.mnist_files import find_or_generate
from benchmarks.page import BENCHMARKS, describe_machine, section, write_section
from benchmarks.rows import Budget, Row
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Reason
from runmanager.records.storage.reader import StoredRun, read_sweep

_SCRIPT = """
import argparse, random, time
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seconds", type=float, default=4)
given = parser.parse_args()
time.sleep(given.seconds * random.Random(given.lr).uniform(0.2, 1.8))
print("val_loss", (given.lr - 0.3) ** 2)
"""
_ROUNDS = 12  # of all slots
_TRAINING = (
    *("dataset=mnist", "dataset.size=2000", "dataset.val_size=1000", "device=cpu", "model=mlp", "optimizer=sgd"),
    *("batch_size=64", "epochs=27", "lr=tag(log,interval(1e-4,3))", "optimizer.momentum=interval(0.0,0.99)"),
    *("tensorboard.graph=false", "hydra.launcher.workers=2"),
)


def search(folder: Path, *words: str) -> Sequence[StoredRun]:
    """Run the search `found` in a folder by a real command, and return its runs. Raises `RuntimeError` if it fails."""
    command = [sys.executable, "-m", "runmanager", "sweep", *words, "--name", "found", "--quiet"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr}")
    return read_sweep(SweepPaths(folder / "outputs" / "found")).runs


def idle_share(runs: Sequence[StoredRun], slots: int) -> float:
    """The share of the slots' time without a run, from the first begin to the last, while trials remain."""
    spans = [
        [
            datetime.datetime.fromisoformat(each or "").timestamp()
            for each in (run.record.started_at, run.record.ended_at)
        ]
        for run in runs
    ]
    first, last = min(begin for begin, _ in spans), max(begin for begin, _ in spans)
    busy = sum(min(end, last) - begin for begin, end in spans)
    return 1 - busy / (slots * (last - first))


def idle_rows(folder: Path, *, seconds: float, rounds: int) -> list[Row]:
    """Search with two and four slots over a script that only waits, about `seconds` for a trial."""
    rows = []
    for slots in (2, 4):
        place = folder / f"slots-{slots}"
        place.mkdir()
        (place / "train.py").write_text(_SCRIPT)
        trials = rounds * slots
        options = ("--search", "tpe", "--trials", str(trials), "--workers", str(slots), "--metric", "val_loss")
        runs = search(place, "train.py", "lr=uniform(0,1)", f"seconds={seconds}", *options)
        share = idle_share(runs, slots)
        what = f"idle time of {slots} slots: {trials} trials of {0.2 * seconds:.1f} to {1.8 * seconds:.1f} s, TPE"
        most = Budget(0.03, format="{:.0%}".format)
        rows.append(Row(what, f"{share:.1%}", budget=str(most), met=most.verdict(share, share, share)))
    return rows


def pruning_rows(folder: Path, *, trials: int, images: str, words: Sequence[str] = _TRAINING) -> list[Row]:
    """Search the same points with and without pruning; `images` names the data."""
    found = {}
    for prune in (None, "hyperband"):
        place = folder / f"pruned-{prune}"
        place.mkdir()
        options = ["--search", "random", "--trials", str(trials), "--metric", "val_loss"]
        options += ["--prune", prune] if prune else []
        runs = search(place, *words, *options)
        values = [run.epochs[-1].val_loss for run in runs if run.is_complete and run.epochs[-1].val_loss is not None]
        found[prune] = (
            sum(len(run.epochs) for run in runs),
            min(values),
            sum(run.record.reason is Reason.PRUNED for run in runs),
        )
    (epochs, best, _), (fewer, pruned_best, num_pruned) = found[None], found["hyperband"]
    what = f"epochs of {trials} random trials on {images}: with `--prune hyperband` ({num_pruned} pruned), and without"
    least = Budget(0.5, format="{:g} times as many".format)
    share = fewer / epochs
    return [
        Row(what, str(fewer), str(epochs), f"{share:.2f}", "1", str(least), least.verdict(share, share, share)),
        Row("the best validation loss of both", f"{pruned_best:.4g}", f"{best:.4g}", f"{pruned_best / best:.3f}"),
    ]


def main() -> None:
    """Measure, and print the rows or write them to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a trial that waits, on average")
    parser.add_argument("--trials", type=int, default=40, help="of the searches on MNIST")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks.md")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        files = find_or_generate(Path(folder))
        os.environ["RUNMANAGER_DATA"] = str(files.root)
        rows = idle_rows(Path(folder), seconds=given.seconds, rounds=_ROUNDS)
        rows += pruning_rows(Path(folder), trials=given.trials, images=files.name)
    text = section(
        rows,
        machine=describe_machine(),
        command=f"python -m benchmarks.search_runs --seconds {given.seconds:g} --trials {given.trials}",
        day=datetime.date.today(),
        seconds=time.monotonic() - began,
    )
    if given.write:
        write_section(BENCHMARKS, "search_runs", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
