"""Sweeps on disk, written like those of real runs, and in memory."""

import datetime
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import readable_name, short_signature, signature
from runmanager.records.settings.values import differing_settings, flatten
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import StoredRun, SweepContents
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells

HOST = Environment(
    host="anvil",
    cpu_model="Zen 4",
    torch_threads=2,
    device_name="Zen 4",
    libraries={"torch": "2.15.0"},
    commit="0123456789abcdef",
    commit_clean=True,
)
BEGIN = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)


def timed_epochs(
    seconds: Sequence[float], *, samples: int = 1000, num_warmup: int = 1, **columns: Any
) -> list[EpochRecord]:
    """Make epochs with these durations, the first `num_warmup` of them warm-up."""
    return [
        EpochRecord(
            epoch=number,
            loss=1.0 / number,
            accuracy=1 - 0.5 / number,
            val_loss=1.5 / number,
            val_accuracy=1 - 0.75 / number,
            epoch_seconds=taken,
            wall_seconds=taken + 0.5,
            run_seconds=sum(seconds[:number]),
            samples=samples,
            warmup=number <= num_warmup,
            **columns,
        )
        for number, taken in enumerate(seconds, start=1)
    ]


def in_memory(
    config: Mapping[str, Any],
    epochs: Sequence[EpochRecord],
    *,
    minute: int = 0,
    status: Status = Status.FINISHED,
    environment: Environment = HOST,
    name: str | None = None,
    **fields: Any,
) -> StoredRun:
    """Make a run that started `minute` minutes after noon and took half a minute, unless `fields` override it."""
    started = BEGIN + datetime.timedelta(minutes=minute)
    times = {
        "started_at": started.isoformat(),
        "ended_at": (started + datetime.timedelta(seconds=30)).isoformat(),
        "run_seconds": 30.0,
        "owner": ProcessIdentity.current(),
    }
    name = name or run_name(config, list(flatten(config)))
    record = RunRecord(
        name=name,
        signature=signature(config),
        status=status,
        config=dict(config),
        environment=environment,
        **{**times, **fields},
    )
    return StoredRun(RunPaths(Path("runs") / name), record, epochs)


def run_name(config: Mapping[str, Any], names: Sequence[str]) -> str:
    flat = flatten(config)
    shown = {name: flat[name] for name in names if name in flat}
    return f"{readable_name(shown)}-{short_signature(signature(config))}"


class SweepMaker:
    """Writer of the runs of a sweep; each starts a minute after the previous one."""

    def __init__(self, folder: Path) -> None:
        self.paths = SweepPaths(folder)
        self.paths.runs.mkdir(parents=True)
        self._minutes = itertools.count()

    def plan(self, *configs: Mapping[str, Any], **given: Any) -> None:
        """Write sweep.json for these cells, with what else a command gives."""
        varying = differing_settings([flatten(config) for config in configs])
        cells = [plan_cell(signature(config), run_name(config, varying), config) for config in configs]
        write_cells(self.paths, cells, SweepCommand(("runmanager", "sweep"), axes={}, **given))

    def run(self, config: Mapping[str, Any], epochs: Sequence[EpochRecord] | None = None, **fields: Any) -> str:
        """Write a run and return its name; by default six epochs of two seconds follow a slow first one."""
        fields = {"minute": next(self._minutes), **fields}
        run = in_memory(config, timed_epochs([9.0] + [2.0] * 6) if epochs is None else epochs, **fields)
        folder = claim_run(self.paths.run(run.record.name), run.record)
        for epoch in run.epochs:
            folder.append(epoch)
        folder.close()
        return run.record.name


@pytest.fixture
def sweep(tmp_path: Path) -> SweepMaker:
    """An empty sweep; fill it with `plan` and `run`."""
    return SweepMaker(tmp_path / "mine")


@pytest.fixture
def make_sweep(tmp_path: Path) -> Callable[[str], SweepMaker]:
    """Factory of further sweeps."""
    return lambda name: SweepMaker(tmp_path / name)


@pytest.fixture(scope="session")
def timed() -> Callable[..., list[EpochRecord]]:
    return timed_epochs


@pytest.fixture(scope="session")
def steady() -> Callable[..., list[EpochRecord]]:
    """Factory of a warm-up epoch followed by `count` epochs of exactly these seconds."""
    return lambda seconds, count=5: timed_epochs([9.0] + [seconds] * count)


@pytest.fixture(scope="session")
def host() -> Environment:
    return HOST


@pytest.fixture(scope="session")
def contents() -> Callable[..., SweepContents]:
    """Factory of sweeps in memory, from (config, epochs, fields) for each run; each starts a minute later."""

    def make(*runs: tuple[Mapping[str, Any], Sequence[EpochRecord], Mapping[str, Any]]) -> SweepContents:
        stored = [
            in_memory(config, epochs, **{"minute": at, **fields}) for at, (config, epochs, fields) in enumerate(runs)
        ]
        return SweepContents(SweepPaths(Path("mine")), stored)

    return make
