"""Comparisons of simulated runs whose truth is known: false verdicts, and how often intervals cover the truth.

`python -m benchmarks.compare_truth --write` takes some minutes and writes its figures into docs/measurement.md.
"""

import argparse
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.page import MEASUREMENT, described_machine, write_section
from runmanager.records.paths import RunPaths, SweepPaths
from runmanager.records.run import Environment, EpochRecord, RunRecord
from runmanager.records.signature import signature
from runmanager.records.states import Status
from runmanager.records.store import StoredRun, SweepContents
from runmanager.results.comparison import compare
from runmanager.results.statistics import speedup_interval

RUN_NOISE, EPOCH_NOISE, DRIFT = 0.03, 0.02, 0.02
EPOCHS = 10
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

Rates = list[list[float]]


@dataclass(frozen=True)
class Row:
    """A line of the page: what was simulated, in how many trials, what share came out and what it should be."""

    what: str
    trials: int
    share: float
    wanted: str

    def __str__(self) -> str:
        return f"| {self.what} | {self.trials:,} | {self.share:.1%} | {self.wanted} |"


def epochs_of(level: float, generator: np.random.Generator, count: int = EPOCHS) -> list[float]:
    """Throughputs of a run's epochs; `level` is the logarithm of their true median."""
    return [float(rate) for rate in np.exp(level + generator.normal(0, EPOCH_NOISE, count))]


def simulated_run(device: str, seed: int, place: int, rates: Sequence[float]) -> StoredRun:
    """A finished run that began as number `place`, its first epoch warm-up."""
    config = {"device": device, "seed": seed}
    begun = START + datetime.timedelta(minutes=place)
    record = RunRecord(
        name=f"device={device},seed={seed}",
        signature=signature(config),
        status=Status.FINISHED,
        config=config,
        started_at=begun.isoformat(),
        ended_at=(begun + datetime.timedelta(seconds=30)).isoformat(),
        environment=Environment(host="simulated", torch_threads=1),
    )
    epochs = [EpochRecord(epoch=1, warmup=True, samples=1, epoch_seconds=9.0)]
    epochs += [EpochRecord(epoch=2 + at, samples=1, epoch_seconds=1 / rate) for at, rate in enumerate(rates)]
    return StoredRun(RunPaths(Path("runs") / record.name), record, epochs)


def simulated_table(runs: Sequence[int], *, in_turns: bool, drift: float, generator: np.random.Generator) -> str:
    """The verdict on two devices of equal speed, `runs` of each; the machine's speed walks by `drift` a run."""
    cells = [(device, seed) for device, count in zip(("cpu", "cuda"), runs, strict=True) for seed in range(count)]
    if in_turns:
        cells.sort(key=lambda cell: cell[1])
    walk = np.cumsum(generator.normal(0, drift, len(cells))) if drift else np.zeros(len(cells))
    levels = walk + generator.normal(0, RUN_NOISE, len(cells))
    stored = [
        simulated_run(device, seed, place, epochs_of(float(level), generator))
        for place, ((device, seed), level) in enumerate(zip(cells, levels, strict=True))
    ]
    (row,) = compare(SweepContents(SweepPaths(Path("simulated")), stored), None).rows
    return str(row["verdict"])


def false_verdicts(trials: int) -> Iterator[Row]:
    """How often two devices of equal speed are called different."""
    cases = (
        ("1 to 5 runs a side in turns, no drift", None, True, 0.0),
        ("1 to 5 runs a side in turns, drift", None, True, DRIFT),
        ("1 to 5 runs a side, one side after the other, drift", None, False, DRIFT),
        ("5 runs a side in turns, no drift", 5, True, 0.0),
        ("5 runs a side in turns, drift", 5, True, DRIFT),
        ("5 runs a side, one side after the other, drift", 5, False, DRIFT),
        ("1 run a side, drift", 1, True, DRIFT),
        ("3 runs a side, one side after the other, drift", 3, False, DRIFT),
    )
    for number, (what, runs, in_turns, drift) in enumerate(cases):
        generator = np.random.default_rng(number)
        false = 0
        for _ in range(trials):
            counts = [runs, runs] if runs else [int(count) for count in generator.integers(1, 6, 2)]
            verdict = simulated_table(counts, in_turns=in_turns, drift=drift, generator=generator)
            false += verdict in ("faster", "slower")
        yield Row(f"false verdicts: {what}", trials, false / trials, "at most 5%")


def plain_interval(sides: Sequence[Rates], generator: np.random.Generator) -> tuple[float, float]:
    """The percentile interval without any correction, of 500 bootstrap samples in two levels."""
    drawn = []
    for side in sides:
        rates = np.log(np.array(side))
        runs = generator.integers(0, len(rates), (500, len(rates)))
        epochs = generator.integers(0, rates.shape[1], (500, len(rates), rates.shape[1]))
        drawn.append(np.median(np.median(rates[runs[:, :, None], epochs], axis=2), axis=1))
    low, high = np.quantile(drawn[1] - drawn[0], [0.025, 0.975])
    return float(low), float(high)


def speedup_coverage(trials: int) -> Iterator[Row]:
    """How often the interval of a speedup holds the true one, 1."""
    for runs in (2, 3, 4, 5, 10):
        generator = np.random.default_rng(runs)
        ours = plain = 0
        for _ in range(trials):
            sides = [
                [epochs_of(float(level), generator) for level in generator.normal(0, RUN_NOISE, runs)] for _ in range(2)
            ]
            found = speedup_interval(sides[0], sides[1])
            ours += found.low <= 1 <= found.high
            low, high = plain_interval(sides, generator)
            plain += low <= 0 <= high
        yield Row(f"speedup's interval covers the truth: {runs} runs a side", trials, ours / trials, "at least 95%")
        yield Row(f"the same without the correction for few runs: {runs} runs a side", trials, plain / trials, "")


def main() -> None:
    """Simulate everything, print each line, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="of each line (default: 2000)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurement.md")
    options = parser.parse_args()
    lines = ["| simulated | trials | share | wanted |", "| --- | ---: | ---: | --- |"]
    for part in (false_verdicts, speedup_coverage):
        for row in part(options.trials):
            print(row, flush=True)
            lines.append(str(row))
    if options.write:
        made = f"`python -m benchmarks.compare_truth --trials {options.trials}`, {datetime.date.today().isoformat()}"
        lines += ["", f"{made}, on {described_machine()}.", ""]
        write_section(MEASUREMENT, "compare_truth", "\n".join(lines))


if __name__ == "__main__":
    main()
