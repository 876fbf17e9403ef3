"""Real sweeps of equal cells, and of cells that are slower by a known share: what `compare` says of them.

python -m benchmarks.real_sweeps --write

One after the other, many runs with equal settings are measured. Consecutive ones are the sweeps of two cells that take
turns, with their real times, and so with the noise and the drift of a real machine. A slower cell has longer epochs.
"""

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.in_process_sweep import run_sweep_in_process
from benchmarks.page import MEASUREMENT, describe_machine, load_average, source_line, write_section
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions, ComparisonRow
from runmanager.results.load.loader import read_results

_SETTINGS = (
    *("device=cpu", "batch_size=100", "tensorboard.enabled=false", "dataset=fake", "dataset.val_size=100"),
    *("loader=resident", "model=mlp", "dataset.size=20000", "epochs=8"),
)
_COUNTS = (2, 3, 5, 8)
_SLOWDOWNS = (0.0, 0.03, 0.05)


def measure(folder: Path, count: int) -> SweepPaths:
    """Measure so many runs that differ in the seed alone, one after the other."""
    return run_sweep_in_process(folder, *_SETTINGS, f"seed=range({count})")


def sweeps_of(pool: Sequence[StoredRun], runs: int, slowdown: float) -> Iterator[ComparisonRow]:
    """Compare the two cells of each sweep of consecutive runs; they take turns, and begin in turns too."""
    ordered = sorted(pool, key=lambda run: run.record.started_at or "")
    for number, start in enumerate(range(0, len(ordered) - 2 * runs + 1, 2 * runs)):
        cells = [
            _as_run(run, (at + at // 2 + number) % 2, at // 2, slowdown)
            for at, run in enumerate(ordered[start : start + 2 * runs])
        ]
        contents = SweepContents(SweepPaths(Path("sweep")), cells)
        yield from compare(contents, None, CompareOptions(axis="cell", baseline=0)).rows


def _as_run(run: StoredRun, cell: int, seed: int, slowdown: float) -> StoredRun:
    factor = 1 + slowdown if cell else 1.0
    epochs = [msgspec.structs.replace(each, epoch_seconds=(each.epoch_seconds or 0.0) * factor) for each in run.epochs]
    config = {**run.record.config, "cell": cell, "seed": seed}
    return replace(run, record=msgspec.structs.replace(run.record, config=config), epochs=epochs)


def lines(pool: Sequence[StoredRun]) -> Iterator[str]:
    """Yield a table row for each number of runs a side: the median width, and the verdicts by slowdown."""
    for runs in _COUNTS:
        found = {slowdown: list(sweeps_of(pool, runs, slowdown)) for slowdown in _SLOWDOWNS}
        rows = [row for each in found.values() for row in each]
        width = median(row["ci_high"] / row["speedup"] - 1 for row in rows)
        cells = [str(runs), str(len(found[_SLOWDOWNS[0]])), f"±{width:.1%}", *map(_verdicts, found.values())]
        yield f"| {' | '.join(cells)} |"


def _verdicts(rows: Sequence[ComparisonRow]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(row["verdict"] for row in rows).most_common())


def main() -> None:
    """Measure the runs, or read those of an earlier call, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="keep the runs here, or read those that are there")
    parser.add_argument("--write", action="store_true", help="write the table to docs/measurement_evidence.md")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="real-sweeps-") as temporary:
        folder = options.folder or Path(temporary)
        found = next(folder.glob("**/sweep.json"), None)
        paths = SweepPaths(found.parent) if found else measure(folder, options.runs)
        pool = list(read_results(paths)[0].runs)
    slowed = " | ".join(f"slower by {slowdown:.0%}" for slowdown in _SLOWDOWNS if slowdown)
    table = [
        f"| runs a side | sweeps | median width | equal | {slowed} |",
        f"| ---: | ---: | --- |{' --- |' * len(_SLOWDOWNS)}",
        *lines(pool),
    ]
    command = f"python -m benchmarks.real_sweeps --runs {len(pool)}"
    text = "\n".join(
        [*table, "", source_line(command, "one thread per run", load_average(), machine=describe_machine()), ""]
    )
    print(text)
    if options.write:
        write_section(MEASUREMENT, "real_sweeps", text)


if __name__ == "__main__":
    main()
