"""Finished runs in memory, as a sweep would have stored them."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.run_record import Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import signature
from runmanager.records.storage.reader import StoredRun, SweepContents

__all__ = ["accurate_run", "simulated_sweep", "timed_run"]

_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_HOST = Environment(host="simulated", torch_threads=1)


def timed_run(config: Mapping[str, Any], rates: Sequence[float]) -> StoredRun:
    """A run of these settings whose epochs had these throughputs, after one to warm up."""
    epochs = [EpochRecord(epoch=1, warmup=True, samples=1, epoch_seconds=9.0)]
    epochs += [EpochRecord(epoch=2 + at, samples=1, epoch_seconds=1 / rate) for at, rate in enumerate(rates)]
    return _run(config, epochs)


def accurate_run(config: Mapping[str, Any], accuracy: float) -> StoredRun:
    """A run of these settings whose last epoch reached an accuracy."""
    return _run(config, [EpochRecord(epoch=1, val_accuracy=accuracy, samples=1)])


def simulated_sweep(runs: Sequence[StoredRun]) -> SweepContents:
    """The sweep of these runs, each of which began a minute after the one before."""
    begun = [_START + datetime.timedelta(minutes=place) for place in range(len(runs))]
    stored = [
        replace(
            run,
            record=msgspec.structs.replace(
                run.record,
                started_at=at.isoformat(),
                ended_at=(at + datetime.timedelta(seconds=30)).isoformat(),
            ),
        )
        for run, at in zip(runs, begun, strict=True)
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
