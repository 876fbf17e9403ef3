"""Sweeps on disk for the commands, a command in this process, and a command in its own process."""

import csv
import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from runmanager.cli.main import run_command
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Reason, Status
from runmanager.records.settings.grid import expand_grid
from runmanager.records.settings.signature import short_signature, signature
from runmanager.records.storage.ownership import claim_run
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells

from ..documented import example_in

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command in this process."""

    def run(*arguments: str) -> Done:
        status = run_command(arguments)
        captured = capfd.readouterr()
        return Done(status, captured.out, captured.err)

    return run


def rows_of(text: str) -> list[dict[str, str]]:
    """The rows of CSV text."""
    return list(csv.DictReader(io.StringIO(text)))


class Application:
    """A stand-in for the Hydra application that records its arguments and returns `status`."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.status = 0

    def main(self, arguments: list[str]) -> int:
        self.calls.append(arguments)
        return self.status


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Application:
    application = Application()
    module = ModuleType("runmanager.app.hydra_main")
    module.main = application.main  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "runmanager.app.hydra_main", module)
    return application


def process_words(*arguments: str, before: str = "", after: str = "") -> list[str]:
    """The command line of a process that runs one command, with code `before` it and `after` it."""
    code = f"import sys\n{before}\nfrom runmanager.cli.main import run_command\n"
    return [sys.executable, "-c", f"{code}status = run_command({list(arguments)!r})\n{after}\nsys.exit(status)"]


def process_environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **variables}


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., Done]:
    """Run a command in a new process, in the folder `tmp_path`."""

    def run(*arguments: str, before: str = "", after: str = "", **variables: str) -> Done:
        done = subprocess.run(
            process_words(*arguments, before=before, after=after),
            cwd=tmp_path,
            env=process_environment(**variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def write_sweep(folder: Path, *, batch_sizes: Sequence[int] = (1000, 100), num_epochs: int = 7) -> SweepPaths:
    """Write a sweep over `batch_sizes` and two devices: finished on CPU, skipped on CUDA.

    A batch of b takes b / 1000 seconds an epoch, the accuracy is 0.9 - b / 10000.
    """
    paths = SweepPaths(folder)
    axes = {"batch_size": list(batch_sizes), "device": ["cpu", "cuda"]}
    cells = []
    for number, params in enumerate(expand_grid(**axes)):
        config = {"lr": 0.01, "batch_size": params.batch_size, "num_workers": 0, "device": params.device, "seed": 0}
        signed = signature(config)
        name = f"batch_size={params.batch_size},device={params.device}-{short_signature(signed)}"
        cells.append(plan_cell(signed, name, config))
        skipped = params.device == "cuda"
        run = claim_run(
            paths.run(name),
            RunRecord(
                name=name,
                signature=signed,
                status=Status.SKIPPED if skipped else Status.FINISHED,
                reason=Reason.DEVICE_UNAVAILABLE if skipped else None,
                config=config,
                started_at=f"2026-11-01T10:{number:02}:00+00:00",
                ended_at=f"2026-11-01T10:{number:02}:30+00:00",
                owner=ProcessIdentity.current(),
                environment=Environment(host="here", torch_threads=1, device_name="a processor"),
            ),
        )
        for epoch in () if skipped else range(1, num_epochs + 1):
            run.append(_epoch(epoch, params.batch_size))
        run.close()
    write_cells(paths, cells, SweepCommand(["runmanager", "sweep"], axes=axes))
    return paths


def _epoch(number: int, batch_size: int) -> EpochRecord:
    seconds = batch_size / 1000
    accuracy = 0.9 - batch_size / 10000
    return EpochRecord(
        epoch=number,
        loss=0.5,
        accuracy=accuracy,
        val_loss=0.6,
        val_accuracy=accuracy - 0.01,
        epoch_seconds=seconds,
        wall_seconds=seconds + 0.01,
        run_seconds=number * seconds,
        samples=60_000,
        warmup=number == 1,
        compute_seconds=seconds,
    )


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepPaths:
    """A sweep in `outputs/grid` under the current folder."""
    monkeypatch.chdir(tmp_path)
    return write_sweep(tmp_path / "outputs" / "grid")


@pytest.fixture
def example(tmp_path: Path) -> Iterator[SweepPaths]:
    """The sweep of docs/commands.md in `outputs/digits` under the current folder."""
    with example_in(tmp_path):
        yield SweepPaths(tmp_path / "outputs" / "digits")


def shown_in_terminal(*arguments: str, columns: int) -> list[str]:
    """The lines that a command shows in a terminal of so many columns, those of both streams."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        process_words(*arguments),
        env={**os.environ, "COLUMNS": str(columns)},
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    shown = b""
    try:
        while part := os.read(master, 65536):
            shown += part
    except OSError:  # what Linux reports once no process has the terminal open
        pass
    finally:
        os.close(master)
        process.wait(timeout=60)
    return shown.decode().replace("\r\n", "\n").splitlines()
