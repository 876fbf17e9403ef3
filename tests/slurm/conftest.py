"""A real Slurm on loopback, and commands of the application that use it."""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import read_epochs, read_sweep
from runmanager.records.sweep.sweep_record import read_sweep_record

from ..processes import discard, wait_for_output

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "reliability")]
from loopback import Slurm, running_slurm, unavailable_reason  # noqa: E402
from sweeps import DYING  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 180
TINY = (
    "dataset=fake",
    "dataset.size=64",
    "dataset.val_size=32",
    "batch_size=32",
    "epochs=3",
    "device=cpu",
    "tensorboard.enabled=false",
    "model=custom",
    "model._target_=own.Net",
)
SLURM = ("hydra/launcher=slurm", "hydra.launcher.poll_seconds=0.3", "hydra.launcher.time=10")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A Slurm for the tests of a module."""
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"needs a real Slurm: {reason}")
    with running_slurm(tmp_path_factory.mktemp("slurm")) as slurm:
        yield slurm


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Sweep:
    """A sweep on disk, as the tests inspect it."""

    paths: SweepPaths

    @property
    def records(self) -> list[RunRecord]:
        return [run.record for run in read_sweep(self.paths).runs]

    def states(self) -> dict[str, tuple[str, str | None]]:
        return {each.name.rpartition("-")[0]: (each.status, each.reason) for each in self.records}

    def record(self, name: str) -> RunRecord:
        """Return the record of the run with this readable name."""
        (found,) = (each for each in self.records if each.name.rpartition("-")[0] == name)
        return found

    def epochs(self, record: RunRecord) -> list[int]:
        return [epoch.epoch for epoch in read_epochs(self.paths.run(record.name))]

    def jobs(self) -> dict[str, str]:
        """Return the job of each cell, by the readable name of its run."""
        jobs = self.paths.root / "slurm" / "jobs.json"
        if not jobs.exists():
            return {}
        record = read_sweep_record(self.paths)
        assert record is not None
        names = {cell.run: cell.name.rpartition("-")[0] for cell in record.planned}
        return {names[folder]: job for folder, job in json.loads(jobs.read_text()).items()}

    def rows(self) -> list[dict[str, str]]:
        with self.paths.results("csv").open(newline="") as lines:
            return list(csv.DictReader(lines))


@dataclass
class Bench:
    """A folder with `own.py`, in which commands are run."""

    folder: Path
    slurm: Slurm
    started: list[subprocess.Popen[str]]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of the application with its runs on Slurm."""
        return self.start_python("-m", "runmanager", *words, *TINY, *SLURM)

    def start_python(self, *words: str, **more: str) -> subprocess.Popen[str]:
        variables = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "240", "PYTHONPATH": str(ROOT)}
        self.started.append(
            subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env={**os.environ, **variables, **self.slurm.variables, **more},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return self.started[-1]

    def run(self, *words: str) -> Done:
        return self.end_of(self.start(*words))

    def end_of(self, process: subprocess.Popen[str]) -> Done:
        out, err = wait_for_output(process, seconds=DEADLINE_SECONDS)
        return Done(process.returncode, out, err)

    def wait_until(self, condition: Callable[[], Any], what: str) -> Any:
        """Return the value of `condition` as soon as it is true."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.1)  # between two checks
        pytest.fail(f"timed out waiting for {what}; {self.slurm.jobs()}")

    def close_gate(self) -> None:
        """Make the run with `way=gate` wait in its second epoch."""
        (self.folder / "gate").touch()

    def wait_at_gate(self) -> None:
        self.wait_until((self.folder / "waiting").exists, "a run at the gate")

    def signal(self, job: str, name: str) -> None:
        """Signal every process of the job of the run at the gate, as Slurm does."""
        self.slurm("scancel", f"--signal={name}", f"{job}.0")
        self.wait_until_signalled()

    def wait_until_signalled(self) -> None:
        self.wait_until((self.folder / "told").exists, "the signal in the run")

    def open_gate(self) -> None:
        (self.folder / "gate").unlink()

    def sweep(self, name: str) -> Sweep:
        return Sweep(SweepPaths(self.folder / "outputs" / name))


@pytest.fixture
def bench(slurm: Slurm, tmp_path: Path) -> Iterator[Bench]:
    shutil.copy(DYING, tmp_path / "own.py")
    bench = Bench(tmp_path, slurm, [])
    yield bench
    for process in bench.started:
        discard(process)
    if slurm.jobs():
        slurm("scancel", "--user=root")
        bench.wait_until(lambda: not slurm.jobs(), "an empty queue")
