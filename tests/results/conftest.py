"""Sweeps on disk, made by the writers that real runs use."""

import datetime
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from runmanager.records.grid import differing, flatten, readable_name
from runmanager.records.paths import SweepPaths
from runmanager.records.process import ProcessIdentity
from runmanager.records.run import Environment, EpochRecord, RunRecord
from runmanager.records.signature import short_signature, signature
from runmanager.records.states import Reason, Status
from runmanager.records.store import claim_run
from runmanager.records.sweep import plan_cell, write_cells

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
    """Epochs that took so long each, the first `num_warmup` of them warm-up."""
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


class SweepMaker:
    """Writes the runs of a sweep; each begins a minute after the one before, and ends within that minute."""

    def __init__(self, folder: Path) -> None:
        self.paths = SweepPaths(folder)
        self.paths.runs.mkdir(parents=True)
        self._minutes = itertools.count()

    def plan(self, *configs: Mapping[str, Any], **axes: Sequence[Any]) -> None:
        """Write sweep.json for these cells."""
        flat = [flatten(config) for config in configs]
        varying = differing(flat)
        cells = [plan_cell(signature(config), self._name(config, varying), config) for config in configs]
        write_cells(self.paths, cells, axes=axes, command=("runmanager", "sweep"))

    def run(
        self,
        config: Mapping[str, Any],
        seconds: Sequence[float] = (9.0, 2.0, 2.0, 2.0, 2.0, 2.0),
        *,
        name: str | None = None,
        status: Status = Status.FINISHED,
        reason: Reason | None = None,
        environment: Environment = HOST,
        epochs: Sequence[EpochRecord] | None = None,
        **fields: Any,
    ) -> str:
        """Write a run with epochs that took `seconds`, or with `epochs`; its name."""
        begun = BEGIN + datetime.timedelta(minutes=next(self._minutes))
        defaults: dict[str, Any] = {
            "started_at": begun.isoformat(),
            "ended_at": (begun + datetime.timedelta(seconds=30)).isoformat(),
            "run_seconds": 30.0,
            "num_parameters": 10,
            "peak_memory_bytes": 2**20,
        }
        name = name or self._name(config, list(flatten(config)))
        folder = claim_run(
            self.paths.run(name),
            RunRecord(
                name=name,
                signature=signature(config),
                status=status,
                reason=reason,
                config=dict(config),
                owner=ProcessIdentity.current(),
                environment=environment,
                **{**defaults, **fields},
            ),
        )
        for epoch in timed_epochs(seconds) if epochs is None else epochs:
            folder.append(epoch)
        folder.close()
        return name

    @staticmethod
    def _name(config: Mapping[str, Any], names: Sequence[str]) -> str:
        flat = flatten(config)
        shown = {name: flat[name] for name in names if name in flat}
        return f"{readable_name(shown)}-{short_signature(signature(config))}"


@pytest.fixture
def make_sweep(tmp_path: Path) -> Callable[..., SweepMaker]:
    """A factory of empty sweeps in the test's folder, to be filled with `plan` and `run`."""
    return lambda name="mine": SweepMaker(tmp_path / name)


@pytest.fixture
def sweep(make_sweep: Callable[..., SweepMaker]) -> SweepMaker:
    """One empty sweep."""
    return make_sweep()
