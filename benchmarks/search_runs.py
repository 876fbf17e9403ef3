"""Real searches: the time in which slots idle between trials, and the epochs that pruning saves on MNIST.

`python -m benchmarks.search_runs --write` takes some minutes and writes its table to docs/benchmarks.md. With
`--peer PYTHON`, hydra-optuna-sweeper and hydra-joblib-launcher run the same trials, in the environment of that Python:
they need an Optuna below 3, so one of its own.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.mnist_files import find_or_generate
from benchmarks.page import BENCHMARKS, describe_machine, section, write_section
from benchmarks.rows import Budget, Row
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Reason
from runmanager.records.storage.reader import StoredRun, read_sweep

_TRIAL = """
    began = time.time()
    time.sleep(given.seconds * random.Random(given.lr).uniform(0.2, 1.8))
    with Path(__file__).with_name("times.txt").open("a") as file:
        print(began, time.time(), file=file)
"""
_SCRIPT = f"""
import argparse, random, time
from pathlib import Path
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
{_TRIAL}
    print("val_loss", (given.lr - 0.3) ** 2)
main()
"""
_APPLICATION = f"""
import random, time
from pathlib import Path
import hydra
@hydra.main(version_base=None, config_path=None)
def main(given):
{_TRIAL}
    return (given.lr - 0.3) ** 2
main()
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


def idle_share(times: Sequence[tuple[float, float]], slots: int) -> float:
    """The share of the slots' time outside of trials, from the first begin to the last, while trials remain.

    `times` are when each trial began and ended (seconds), by the clock of its program.
    """
    first, last = min(begin for begin, _ in times), max(begin for begin, _ in times)
    busy = sum(min(end, last) - begin for begin, end in times)
    return 1 - busy / (slots * (last - first))


def idle_rows(folder: Path, *, seconds: float, rounds: int, peer: Path | None) -> list[Row]:
    """Search with two and four slots over a program that only waits, about `seconds` for a trial."""
    rows = []
    for slots in (2, 4):
        trials = rounds * slots
        place = folder / f"slots-{slots}"
        place.mkdir()
        (place / "train.py").write_text(_SCRIPT)
        options = ("--search", "tpe", "--trials", str(trials), "--workers", str(slots), "--metric", "val_loss")
        search(place, "train.py", "lr=uniform(0,1)", f"seconds={seconds}", *options)
        share = idle_share(_noted_times(place), slots)
        other = None if peer is None else _idle_share_of_peer(folder / f"peer-{slots}", peer, slots, trials, seconds)
        what = f"idle time of {slots} slots: {trials} trials of {0.2 * seconds:.1f} to {1.8 * seconds:.1f} s, TPE"
        most = Budget(0.03, format="{:.0%}".format)
        rows.append(
            Row(
                what if other is None else f"{what}; other: hydra-optuna-sweeper with hydra-joblib-launcher",
                f"{share:.1%}",
                "-" if other is None else f"{other:.1%}",
                budget=str(most),
                met=most.verdict(share, share, share),
            )
        )
    return rows


def _idle_share_of_peer(place: Path, python: Path, slots: int, trials: int, seconds: float) -> float:
    place.mkdir()
    (place / "train.py").write_text(_APPLICATION)
    plugins = ("hydra/sweeper=optuna", "hydra/launcher=joblib", f"hydra.launcher.n_jobs={slots}")
    asked = (f"hydra.sweeper.n_jobs={slots}", f"hydra.sweeper.n_trials={trials}", "hydra.sweeper.direction=minimize")
    words = ("train.py", "-m", *plugins, *asked, "+lr=interval(0,1)", f"+seconds={seconds}")
    subprocess.run([python, *words], cwd=place, capture_output=True, check=True)
    return idle_share(_noted_times(place), slots)


def _noted_times(place: Path) -> list[tuple[float, float]]:
    lines = (place / "times.txt").read_text().splitlines()
    return [(float(begin), float(end)) for begin, end in map(str.split, lines)]


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
    parser.add_argument("--peer", type=Path, metavar="PYTHON", help="of an environment with hydra-optuna-sweeper")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = find_or_generate(Path(folder))
        os.environ["RUNMANAGER_DATA"] = str(files.root)
        rows = idle_rows(Path(folder), seconds=given.seconds, rounds=_ROUNDS, peer=given.peer)
        rows += pruning_rows(Path(folder), trials=given.trials, images=files.name)
    text = section(
        rows,
        machine=describe_machine(),
        command=f"python -m benchmarks.search_runs --seconds {given.seconds:g} --trials {given.trials}"
        + (" --peer PYTHON" if given.peer else ""),
        day=datetime.date.today(),
    )
    if given.write:
        write_section(BENCHMARKS, "search_runs", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
