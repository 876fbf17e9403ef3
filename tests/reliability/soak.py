"""Soak a driver with cells, and a run with epochs: what grows, and how much longer the last ones take.

python tests/reliability/soak.py --cells 5000 --write docs/reliability.md
python tests/reliability/soak.py --epochs 5000 --write docs/reliability.md
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import psutil
from commands import killed_at_exit, start_python
from page import write_row

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_sweep

_SAMPLE_SECONDS = 0.5
_MOST_BYTES_A_CELL = 20_000
_PATIENCE_SECONDS = 4 * 3600

# A loop with everything that is on by default: tables, event file, heartbeat, checkpoints.
_EPOCHS = """
import json, os, sys, threading, time
import psutil, torch
from torch import nn
from runmanager import RunManager

this, samples = psutil.Process(), open("samples.jsonl", "a")

def sample(done):
    seconds, cpu = time.perf_counter(), sum(this.cpu_times()[:2])
    counts = [this.num_fds(), this.num_threads(), len(this.children(recursive=True)), this.memory_info().rss]
    print(json.dumps([done, *counts, seconds, cpu]), file=samples, flush=True)

torch.manual_seed(0)
network = nn.Linear(8, 4)
batch = torch.rand(10, 8), torch.randint(0, 4, (10,))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
with RunManager("outputs/soak", console=False).run(
    {"lr": 0.1}, network, [batch], optimizer=optimizer, state={"optimizer": optimizer}
) as run:
    for epoch in run.epochs(int(sys.argv[1])):
        for inputs, labels in epoch.batches([batch]):
            preds = network(inputs)
            loss = nn.functional.cross_entropy(preds, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch.track(loss, preds, labels)
        sample(epoch.number)
"""


@dataclass(frozen=True)
class Sample:
    """A process after so many cells or epochs: its resources, and the time and its processor time in seconds."""

    done: int
    descriptors: int
    threads: int
    processes: int
    memory: int
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Growth:
    """The first tenth of the cells or epochs against the last one, up to the last cell, which tables follow."""

    first: Sequence[Sample]
    last: Sequence[Sample]

    @classmethod
    def of(cls, samples: Sequence[Sample], number: int) -> "Growth":
        """The very first ones are left out: they bring files and modules into memory."""
        first = [each for each in samples if number / 100 < each.done <= number / 10]
        return cls(first, [each for each in samples if number * 9 / 10 <= each.done < number])

    def means(self, name: str) -> tuple[float, float]:
        """Return the mean of a resource in the first tenth and in the last."""
        first, last = ([getattr(each, name) for each in part] for part in (self.first, self.last))
        return mean(first), mean(last)

    def rates(self, name: str) -> tuple[float, float]:
        """Return the seconds for one cell or epoch in the first tenth and in the last."""
        first, last = (_rate(part, name) for part in (self.first, self.last))
        return first, last

    @property
    def bytes_each(self) -> float:
        """Return the memory that each cell or epoch in between has added; medians, as tables come and go."""
        first, last = (median(each.memory for each in part) for part in (self.first, self.last))
        done_first, done_last = self.means("done")
        return (last - first) / (done_last - done_first)

    def grown(self) -> list[str]:
        """Return what grows: more than one of a kind, as one may be a file that is just being written."""
        found = []
        for name in ("descriptors", "threads", "processes"):
            first, last = self.means(name)
            if last > first + 1:
                found.append(f"{name} from {first:.1f} to {last:.1f}")
        if self.bytes_each > _MOST_BYTES_A_CELL:
            found.append(f"memory by {self.bytes_each:,.0f} bytes each")
        return found

    def text(self, *, each: str) -> str:
        """Describe it for the page."""
        counts = (
            f"{name} {first:.3g} and {last:.3g}"
            for name in ("descriptors", "threads", "processes")
            for first, last in [self.means(name)]
        )
        ratios = [last / first if first else 1.0 for first, last in (self.rates("seconds"), self.rates("cpu_seconds"))]
        memory = f"{self.bytes_each / 1000:+.2g} KB of memory {each}"
        return (
            f"{', '.join(counts)}; {memory}; {ratios[0]:.2f} times the time, {ratios[1]:.2f} times the processor time"
        )


def _rate(samples: Sequence[Sample], name: str) -> float:
    first, last = samples[0], samples[-1]
    return (getattr(last, name) - getattr(first, name)) / max(1, last.done - first.done)


def soak_cells(folder: Path, number: int) -> Growth:
    """Run cells that return immediately, two at a time, and watch their driver. Raises `RuntimeError` if one fails."""
    words = ["-m", "benchmarks.instant_application", "-m", f"seed=range(0,{number})", "name=soak"]
    log = folder / "driver.log"
    driver = start_python(folder, *words, "hydra.launcher.workers=2", "--yes", log=log)
    sweep = SweepPaths(folder / "outputs" / "soak")
    samples: list[Sample] = []
    with killed_at_exit(driver):
        process = psutil.Process(driver.pid)
        until = time.monotonic() + _PATIENCE_SECONDS
        while driver.poll() is None and time.monotonic() < until:
            num_done = len(os.listdir(sweep.runs)) if sweep.runs.exists() else 0
            try:
                samples.append(_sample(process, num_done))
            except (psutil.Error, FileNotFoundError):  # it has just ended
                break
            time.sleep(min(_SAMPLE_SECONDS, 0.0002 * number))
        driver.wait(600)
    finished = sum(run.record.status is Status.FINISHED for run in read_sweep(sweep).runs)
    if driver.returncode != 0 or finished != number:
        raise RuntimeError(
            f"{finished} of {number} cells finished, status {driver.returncode}:\n{log.read_text()[-3000:]}"
        )
    return Growth.of([each for each in samples if each.done], number)


def _sample(process: psutil.Process, done: int) -> Sample:
    cpu = process.cpu_times()
    return Sample(
        done,
        process.num_fds(),
        process.num_threads(),
        len(process.children(recursive=True)),
        process.memory_info().rss,
        time.perf_counter(),
        cpu.user + cpu.system,
    )


def soak_epochs(folder: Path, number: int) -> Growth:
    """Run a loop of so many epochs, which takes a sample of itself after each. Raises `RuntimeError` if it fails."""
    (folder / "loop.py").write_text(_EPOCHS)
    log = folder / "loop.log"
    loop = start_python(folder, "loop.py", str(number), log=log)
    with killed_at_exit(loop):
        loop.wait(_PATIENCE_SECONDS)
    lines = (folder / "samples.jsonl").read_text().splitlines() if loop.returncode == 0 else []
    if len(lines) != number:
        raise RuntimeError(f"{len(lines)} of {number} epochs, status {loop.returncode}:\n{log.read_text()[-3000:]}")
    return Growth.of([Sample(*json.loads(line)) for line in lines], number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cells", type=int, help="run a sweep of so many cells")
    what.add_argument("--epochs", type=int, help="make a run of so many epochs")
    parser.add_argument("--write", type=Path, help="the page whose row is written")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        growth = soak_cells(Path(folder), args.cells) if args.cells else soak_epochs(Path(folder), args.epochs)
    number = args.cells or args.epochs
    what_done = (
        f"{number:,} cells that return immediately, two at a time"
        if args.cells
        else f"A run of {number:,} epochs of a custom loop, with a checkpoint after each"
    )
    command = f"`python tests/reliability/soak.py --{'cells' if args.cells else 'epochs'} {number}`"
    of = "the driver" if args.cells else "the process"
    text = f"{of} in the first tenth and in the last: {growth.text(each='a cell' if args.cells else 'an epoch')}"
    line = f"| {what_done} | {text} | {command} |"
    print(line)
    if args.write is not None:
        write_row(args.write, r"[\d,]+ cells that return" if args.cells else r"A run of [\d,]+ epochs", line)
    if grown := growth.grown():
        sys.exit(f"error: {'; '.join(grown)}")


if __name__ == "__main__":
    main()
