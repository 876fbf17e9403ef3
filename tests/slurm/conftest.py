"""A real Slurm on loopback, and the application whose runs it runs."""

import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runmanager.records.paths import SweepPaths
from runmanager.records.run import RunRecord
from runmanager.records.store import read_epochs, read_sweep

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 180
NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
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

# Two steps an epoch: the third is the first of the second epoch.
OWN_MODULE = '''
import os, signal, sys, time
from pathlib import Path
import torch

class Net(torch.nn.Module):
    """Does what `way` says in its first step of training."""

    def __init__(self, in_shape, num_classes, way="fine"):
        super().__init__()
        self.linear = torch.nn.Linear(in_shape[0] * in_shape[1] * in_shape[2], num_classes)
        self.way = way
        self.steps = 0

    def forward(self, images):
        if self.training:
            self.steps += 1
            if self.steps == 1:
                getattr(self, "_" + self.way)()
            if self.steps == 3 and self.way == "gate":
                self._wait()
        scores = self.linear(images.flatten(1))
        return scores * float("nan") if self.way == "diverges" and self.training else scores

    def _wait(self):
        stop = signal.getsignal(signal.SIGTERM)
        def told(number, frame):
            stop(number, frame)
            Path("told").touch()
        signal.signal(signal.SIGTERM, told)
        while Path("gate").exists():
            Path("waiting").touch()
            time.sleep(0.05)

    def _fine(self): pass
    _one = _two = _three = _four = _fine
    def _gate(self): pass
    def _diverges(self): pass
    def _raises(self): raise ValueError("this model wants no data")
    def _exits(self): sys.exit(3)
    def _memory(self): raise MemoryError("all is full")
    def _killed(self): os.kill(os.getpid(), signal.SIGKILL)
    def _segfaults(self): os.kill(os.getpid(), signal.SIGSEGV)
    def _hangs(self):
        while True: time.sleep(1)
    def _loader(self):
        import psutil
        for worker in psutil.Process().children():
            worker.kill()
'''


@dataclass(frozen=True)
class Slurm:
    """A running Slurm; its commands find it by `variables`."""

    variables: dict[str, str]

    def __call__(self, *command: str) -> str:
        """What one of Slurm's commands prints."""
        environment = {**os.environ, **self.variables}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    def jobs(self) -> dict[str, str]:
        """The state of each job in the queue."""
        lines = self("squeue", "--noheader", "--array", "--format", "%i %T").splitlines()
        return dict(line.split() for line in lines)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Starts slurmctld and slurmd, and stops them at the end."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"a real Slurm is wanted: {missing[0]} is not installed (Debian: apt install slurm-wlm munge)")
    if os.geteuid() != 0:
        pytest.skip("a real Slurm is wanted: only root can start its daemons")
    pytest.importorskip(
        "submitit", reason="a real Slurm is wanted, with submitit (pip install torch-runmanager[slurm])"
    )
    folder = tmp_path_factory.mktemp("slurm")
    command = [str(Path(__file__).with_name("start_slurm.sh")), str(folder), *map(str, free_ports(2))]
    # Its standard input is the lifeline: when this process is gone, however it went, Slurm goes too.
    with (folder / "faults").open("w") as faults:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=faults, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        if process.stdout.readline().strip() != "ready":
            process.wait(timeout=60)
            pytest.fail(f"Slurm did not start:\n{(folder / 'faults').read_text()}")
        yield Slurm({"SLURM_CONF": str(folder / "slurm.conf")})
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=60)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Sweep:
    """What a test wants to know of a sweep on disk."""

    paths: SweepPaths

    @property
    def records(self) -> list[RunRecord]:
        return [run.record for run in read_sweep(self.paths).runs]

    def states(self) -> dict[str, tuple[str, str | None]]:
        return {each.name.rpartition("-")[0]: (each.status, each.reason) for each in self.records}

    def record(self, name: str) -> RunRecord:
        """The record of the run whose readable name this is."""
        (found,) = (each for each in self.records if each.name.rpartition("-")[0] == name)
        return found

    def epochs(self, record: RunRecord) -> list[int]:
        return [epoch.epoch for epoch in read_epochs(self.paths.run(record.name))]

    def jobs(self) -> dict[str, str]:
        """The job of each cell, by the run's readable name."""
        if not self.paths.slurm_jobs.exists():
            return {}
        return {name.rpartition("-")[0]: job for name, job in json.loads(self.paths.slurm_jobs.read_text()).items()}

    def rows(self) -> list[dict[str, str]]:
        with self.paths.results("csv").open(newline="") as lines:
            return list(csv.DictReader(lines))


@dataclass
class Bench:
    """A folder with `own.py` in it, from which commands are given."""

    folder: Path
    slurm: Slurm
    started: list[subprocess.Popen[str]]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command of the application, its runs on Slurm."""
        return self.start_python("-m", "runmanager", *words, *TINY, *SLURM)

    def start_python(self, *words: str) -> subprocess.Popen[str]:
        quiet = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "240", "PYTHONPATH": str(ROOT)}
        self.started.append(
            subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env={**os.environ, **quiet, **self.slurm.variables},
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
        try:
            out, err = process.communicate(timeout=DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"the command came to no end:\n{out}\n{err}\n{self.slurm.jobs()}")
        return Done(process.returncode, out, err)

    def wait_until(self, condition: Callable[[], Any], what: str) -> Any:
        """What `condition` returns, as soon as it is true."""
        until = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < until:
            value = condition()
            if value:
                return value
            time.sleep(0.1)  # between two looks at the condition
        pytest.fail(f"{what}: waited for in vain; {self.slurm.jobs()}")

    def close_gate(self) -> None:
        """Let the run with `way=gate` wait in its second epoch."""
        (self.folder / "gate").touch()

    def wait_at_gate(self) -> None:
        self.wait_until((self.folder / "waiting").exists, "a run at the gate")

    def tell(self, job: str, name: str) -> None:
        """Send the run at the gate a signal, as Slurm does: to every process of its job."""
        self.slurm("scancel", f"--signal={name}", f"{job}.0")
        self.wait_until_told()

    def wait_until_told(self) -> None:
        self.wait_until((self.folder / "told").exists, "the run told to stop")

    def open_gate(self) -> None:
        (self.folder / "gate").unlink()

    def sweep(self, name: str) -> Sweep:
        return Sweep(SweepPaths(self.folder / "outputs" / name))


@pytest.fixture
def bench(slurm: Slurm, tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "own.py").write_text(OWN_MODULE)
    bench = Bench(tmp_path, slurm, [])
    yield bench
    for process in bench.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()
    left = list(slurm.jobs())
    if left:
        slurm("scancel", *left)
        bench.wait_until(lambda: not slurm.jobs(), "an empty queue")
