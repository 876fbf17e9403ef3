"""Simulated comparisons: of sides of runs, and of finished runs in memory, as a sweep would store them."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.run_record import Environment, EpochRecord, InferenceRecord, Measurements, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import signature
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.verdict import verdict
from runmanager.results.metrics.metric import THROUGHPUT
from runmanager.results.stats.descriptive import Estimate, Runs, make_sample
from runmanager.results.stats.effects import Contrast, simultaneous_estimates

__all__ = [
    "Line",
    "accurate_run",
    "estimate_speedups",
    "marked",
    "share",
    "simulated_sweep",
    "timed_network",
    "timed_run",
    "verdict_of",
]

Line = tuple[str, Sequence[str], str]
"""A table row: what was simulated, its figures, and what is wanted of them."""

_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_HOST = Environment(host="simulated", torch_threads=1)


def share(found: Sequence[bool], *, least: float = 0.0, most: float = 1.0) -> str:
    """Format how many of all are true, in bold where that is less or more than is wanted."""
    value = sum(found) / len(found)
    return marked(value, is_missed=not least <= value <= most)


def marked(figure: float, *, is_missed: bool, form: str = ".1%") -> str:
    """Format a figure, in bold where it misses what is wanted."""
    text = f"{figure:{form}}".replace("100.0%", "100%")
    return f"**{text}**" if is_missed else text


def estimate_speedups(
    sides: Sequence[Runs], times: Sequence[Sequence[float]] | None = None, *, is_blocked: bool = False
) -> list[Estimate]:
    """Compare each side with the first; `is_blocked`: they did not take turns."""
    samples = [
        make_sample(side, is_ratio=True, key=number, times=times[number] if times else ())
        for number, side in enumerate(sides)
    ]
    drift = CompareOptions.drift if is_blocked else 0.0
    return simultaneous_estimates([Contrast(samples[0], each, drift=drift) for each in samples[1:]])


def verdict_of(estimate: Estimate, *, is_blocked: bool = False) -> str:
    """Return the verdict on sides of runs by the default margin."""
    options = CompareOptions()
    drift = options.drift if is_blocked else 0.0
    return verdict(THROUGHPUT, estimate.interval, tolerance=0.0, margin=options.margin_of("speedup"), drift=drift)


def timed_run(config: Mapping[str, Any], rates: Sequence[float]) -> StoredRun:
    """Return a run whose epochs have these throughputs, after one warm-up epoch."""
    epochs = [EpochRecord(epoch=1, warmup=True, samples=1, epoch_seconds=9.0)]
    epochs += [EpochRecord(epoch=epoch, samples=1, epoch_seconds=1 / rate) for epoch, rate in enumerate(rates, 2)]
    return _run(config, epochs)


def accurate_run(config: Mapping[str, Any], accuracy: float) -> StoredRun:
    """Return a run whose last epoch has this validation accuracy."""
    return _run(config, [EpochRecord(epoch=1, val_accuracy=accuracy, samples=1)])


def timed_network(config: Mapping[str, Any], found: Sequence[InferenceRecord]) -> StoredRun:
    """Return a run whose network was timed after training."""
    run = timed_run(config, [1.0])
    return replace(run, record=msgspec.structs.replace(run.record, measurements=Measurements(inference=list(found))))


def simulated_sweep(runs: Sequence[StoredRun]) -> SweepContents:
    """Return the sweep of these runs, started one minute apart."""
    starts = [_START + datetime.timedelta(minutes=index) for index in range(len(runs))]
    stored = [
        replace(
            run,
            record=msgspec.structs.replace(
                run.record,
                started_at=start.isoformat(),
                ended_at=(start + datetime.timedelta(seconds=30)).isoformat(),
            ),
        )
        for run, start in zip(runs, starts, strict=True)
    ]
    return SweepContents(SweepPaths(Path("simulated")), stored)


def _run(config: Mapping[str, Any], epochs: Sequence[EpochRecord]) -> StoredRun:
    name = ",".join(f"{key}={value}" for key, value in config.items())
    record = RunRecord(
        name=name,
        signature=signature(config),
        status=Status.FINISHED,
        config=dict(config),
        environment=_HOST,
    )
    return StoredRun(RunPaths(Path("runs") / name), record, epochs)
