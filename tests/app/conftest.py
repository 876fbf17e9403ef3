"""Fixtures that run the application in this or a new process, in a test's folder, on tiny datasets."""

import contextlib
import csv
import io
import multiprocessing.spawn
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from runmanager.app.hydra_main import main
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import read_epochs, read_sweep

from ..processes import TIMEOUT_SECONDS, wait_for_output, wait_until

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))  # the folder of the tests' modules
DEADLINE_SECONDS = TIMEOUT_SECONDS
TINY = (
    "dataset=fake",
    "dataset.size=64",
    "dataset.val_size=32",
    "model=logistic",
    "batch_size=32",
    "epochs=2",
    "device=cpu",
    "tensorboard.graph=false",
)
# No visible GPU, and lines wide enough for the tests.
VARIABLES = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "COLUMNS": "240"}

# A custom model. While the file `gate`, or the file that it is given, is in the current folder, the first step of the
# second epoch waits for its removal.
OWN_MODULE = '''
import os, signal, sys, time
from pathlib import Path
import torch

class Net(torch.nn.Module):
    """A model that does what `way` says in its first training step."""

    def __init__(self, in_shape, num_classes, way="fine", partners=0, gate="gate"):
        super().__init__()
        self.linear = torch.nn.Linear(in_shape[0] * in_shape[1] * in_shape[2], num_classes)
        self.way = way
        self.partners = partners
        self.gate = Path(gate)
        self.steps = 0

    def forward(self, images):
        if self.training:
            self.steps += 1
            if self.steps == 1:
                getattr(self, "_" + self.way)()
            if self.steps == 3:
                self._wait_at_the_gate()
        scores = self.linear(images.flatten(1))
        return scores * float("nan") if self.way == "diverges" and self.training else scores

    def _wait_at_the_gate(self):
        until = time.monotonic() + 100
        while self.gate.exists():
            Path("waiting").touch()
            if time.monotonic() > until:
                raise TimeoutError("the gate was not opened")
            time.sleep(0.01)

    def _meet(self):
        """Continue only when `partners` runs are here at the same time."""
        Path("met").mkdir(exist_ok=True)
        Path("met", str(os.getpid())).touch()
        until = time.monotonic() + 100
        while len(list(Path("met").iterdir())) < self.partners:
            if time.monotonic() > until:
                raise TimeoutError("no other run came")
            time.sleep(0.01)

    def _fine(self): print("a word of mine")
    def _diverges(self): pass
    def _raises(self): raise ValueError("this model wants no data\\nand says so in two lines")
    def _exits(self): sys.exit(3)
    def _memory(self): raise MemoryError("all is full")
    def _vanishes(self): os._exit(0)
    def _dies_once(self):
        """Die if no other run has died of it yet."""
        try:
            Path("deadly").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def _dies_again(self):
        """Die once, but not before a process has taken measured turns."""
        if any(Path("outputs").glob("*/runs/*/turns.jsonl")):
            self._dies_once()

    def _segfaults(self): os.kill(os.getpid(), signal.SIGSEGV)
'''


@dataclass(frozen=True)
class Done:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def faults(self) -> list[str]:
        return self.err.splitlines()


_preparation_data = multiprocessing.spawn.get_preparation_data


def _without_main_module(name: str) -> dict[str, Any]:
    """Hide the main module, pytest, which each run's process would import first."""
    data = _preparation_data(name)
    return {key: value for key, value in data.items() if not key.startswith("init_main")}


@contextlib.contextmanager
def stopped_at_a_deadline() -> Iterator[None]:
    """Send two Ctrl-C after a deadline: the command ends with 130, and the test fails."""

    is_over = threading.Event()

    def stop() -> None:
        for _ in range(2):
            if is_over.is_set():
                return  # a Ctrl-C now would end the test session
            os.kill(os.getpid(), signal.SIGINT)
            is_over.wait(1)  # two signals at once would count as one

    timer = threading.Timer(2 * DEADLINE_SECONDS, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        is_over.set()
        timer.cancel()
        timer.join()


_OWN_ORDER = (
    "hydra/sweeper=",
    "measure=",
    "--order",
    "hydra.sweeper.order=",
    "hydra.sweeper.search=",
    "hydra.sweeper.sides=",
    "--cfg",
    "--help",
)


def in_grid_order(words: Sequence[str]) -> Sequence[str]:
    """A grid whose cells start in its own order, which most tests tell the cells by."""
    if "-m" not in words or any(word.startswith(_OWN_ORDER) for word in words):
        return words
    at = words.index("-m") + 1
    return [*words[:at], "--order", "grid", *words[at:]]


def carry_out(folder: Path, *words: str, **variables: str) -> Done:
    """Run a command in this process, in `folder`; its runs have their own processes."""
    out, err = io.StringIO(), io.StringIO()
    before = Path.cwd()
    path = list(sys.path)
    os.chdir(folder)
    try:
        with (
            stopped_at_a_deadline(),
            # The forkserver must find the package even if it is not installed.
            mock.patch.dict(os.environ, {**VARIABLES, "PYTHONPATH": str(ROOT), **variables}),
            mock.patch.object(multiprocessing.spawn, "get_preparation_data", _without_main_module),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            status = main(in_grid_order(words))
    finally:
        os.chdir(before)
        sys.path[:] = path
    return Done(status, out.getvalue(), err.getvalue())


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Done]:
    """Run a command in this process, in `tmp_path`."""

    def from_here(*words: str, **variables: str) -> Done:
        return carry_out(tmp_path, *words, **variables)

    return from_here


def process_environment(**variables: str) -> dict[str, str]:
    return {**os.environ, **VARIABLES, "PYTHONPATH": str(ROOT), **variables}


def start_process(folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """Start `python -m runmanager` as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "runmanager", *in_grid_order(words)],
        cwd=folder,
        env=process_environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def done_of(process: subprocess.Popen[str]) -> Done:
    out, err = wait_for_output(process, seconds=DEADLINE_SECONDS)
    return Done(process.returncode, out, err)


@pytest.fixture
def start(tmp_path: Path, mortal: Callable[..., Any]) -> Callable[..., subprocess.Popen[str]]:
    """Start commands as processes in `tmp_path`; they are ended with the test."""

    def begin(*words: str, **variables: str) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = mortal(start_process(tmp_path, *words, **variables))
        return process

    return begin


@pytest.fixture
def own_module(tmp_path: Path) -> Path:
    """`own.py` in the folder in which commands run."""
    path = tmp_path / "own.py"
    path.write_text(OWN_MODULE)
    return path


@dataclass(frozen=True)
class Sweep:
    """A sweep on disk, as tests read it."""

    paths: SweepPaths

    @property
    def records(self) -> list[RunRecord]:
        return [run.record for run in read_sweep(self.paths).runs]

    def record(self, **settings: Any) -> RunRecord:
        """The only run with these settings."""
        (found,) = (each for each in self.records if settings.items() <= each.settings.items())
        return found

    def states(self) -> dict[str, tuple[str, str | None]]:
        return {each.name.rpartition("-")[0]: (each.status, each.reason) for each in self.records}

    def rows(self, file: str = "results.csv") -> list[dict[str, str]]:
        with (self.paths.root / file).open(newline="") as lines:
            return list(csv.DictReader(lines))

    def numbers(self) -> dict[str, list[dict[str, Any]]]:
        """Each run's epochs without their times, which always differ."""
        return {
            record.name: [
                {key: value for key, value in line.items() if not key.endswith("_seconds") and key != "warmup"}
                for line in map(msgspec.structs.asdict, read_epochs(self.paths.run(record.name)))
            ]
            for record in self.records
        }

    def num_epochs(self, record: RunRecord) -> int:
        return len(read_epochs(self.paths.run(record.name)))


def sweep_in(folder: Path, name: str) -> Sweep:
    return Sweep(SweepPaths(folder / "outputs" / name))


@pytest.fixture
def sweep(tmp_path: Path) -> Callable[[str], Sweep]:
    """A sweep under `tmp_path` by its name."""

    def named(name: str) -> Sweep:
        return sweep_in(tmp_path, name)

    return named


GRID = ("-m", "lr=0.01", "batch_size=16,32", "num_workers=0,1", "device=cpu,cuda", "epochs=2", "name=grid")


@dataclass(frozen=True)
class Grid:
    """A finished grid that many tests read."""

    folder: Path
    done: Done
    sweep: Sweep
    words: tuple[str, ...]


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    """The main job with eight cells, run as a process without a GPU."""
    folder = tmp_path_factory.mktemp("grid")
    words = (*GRID, *TINY[:4])
    return Grid(folder, done_of(start_process(folder, *words)), sweep_in(folder, "grid"), words)


@pytest.fixture(scope="session")
def tiny() -> tuple[str, ...]:
    """Overrides of a tiny run."""
    return TINY


@pytest.fixture(scope="session")
def finish() -> Callable[..., Done]:
    """Wait for the end of a started command."""
    return done_of


@pytest.fixture(scope="session")
def wait() -> Callable[..., Any]:
    """Wait until a condition holds."""
    return wait_until


@pytest.fixture(scope="session")
def elsewhere() -> Callable[..., Sweep]:
    """Run a command that must succeed in the given folder; return its sweep `name=…`."""

    def run(folder: Path, *words: str) -> Sweep:
        done = carry_out(folder, *words)
        assert done.status == 0, done.err
        (name,) = (word.partition("=")[2] for word in words if word.startswith("name="))
        return sweep_in(folder, name)

    return run


@pytest.fixture(scope="session")
def bad_grid() -> Callable[..., Grid]:
    """Run a command with `own.py` in its folder, with any exit status."""

    def run(folder: Path, *words: str) -> Grid:
        (folder / "own.py").write_text(OWN_MODULE)
        (name,) = (word.partition("=")[2] for word in words if word.startswith("name="))
        return Grid(folder, carry_out(folder, *words), sweep_in(folder, name), words)

    return run


@pytest.fixture(scope="session")
def rerun() -> Callable[..., Done]:
    """Repeat a command with further arguments."""

    def run(grid: Grid, *words: str) -> Done:
        return carry_out(grid.folder, *grid.words, *words)

    return run


@pytest.fixture(scope="session")
def environment() -> Callable[..., dict[str, str]]:
    """The environment of a command in a new process."""
    return process_environment
