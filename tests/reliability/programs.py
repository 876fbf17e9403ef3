"""The program that tests/reliability/kills.py kills: a sweep of a custom model."""

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import psutil
from commands import DEADLINE_SECONDS, killed_at_exit, start, wait_until
from forked_python import ForkedProcess

from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_epochs, read_sweep

__all__ = ["Process", "Sweep"]

Process = subprocess.Popen[bytes] | ForkedProcess

# A custom model. It logs the beginning of each epoch, so that an epoch that runs twice is detected independently of the
# records, and dies where a file in the folder `deaths` says so. Its steps are counted in a buffer, which is part of a
# checkpoint.
MODEL = """
import os, signal
from pathlib import Path
import psutil, torch
from hydra.core.hydra_config import HydraConfig

STEPS_AN_EPOCH = 4

class Net(torch.nn.Module):
    def __init__(self, in_shape, num_classes):
        super().__init__()
        size = in_shape[0] * in_shape[1] * in_shape[2]
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(size, 16), torch.nn.ReLU(), torch.nn.Dropout(0.3),
            torch.nn.Linear(16, num_classes),
        )
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, images):
        if self.training:
            epoch, step = divmod(int(self.steps), STEPS_AN_EPOCH)
            self.steps += 1
            run = Path(HydraConfig.get().runtime.output_dir)
            if step == 0:
                note(run.parents[1] / "begun.txt", f"{run.name} {epoch + 1}")
            if step == 1:
                die(Path("deaths", run.name), epoch + 1)
        return self.layers(images)

def note(path, line):
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{line}\\n".encode())
    os.close(handle)

def die(order, epoch):
    if not order.exists():
        return
    when, whom = order.read_text().split()
    if int(when) == epoch:
        order.unlink()
        me = psutil.Process()
        (me.parent().parent() if whom == "driver" else me).kill()
        signal.pause()  # a dead driver takes its runs along
"""

_DATA = ("dataset=fake", "dataset.size=64", "dataset.val_size=32", "dataset.in_shape=[1,8,8]", "batch_size=16")
_BASE = (*_DATA, "model=custom", "model._target_=killable.Net", "epochs=12", "device=cpu", "tensorboard.graph=false")
_VARIANTS = {
    "adam": ("lr=0.01", "scheduler=constant,cosine,onecycle", "num_workers=0,1", "hydra.launcher.workers=2"),
    "sgd": ("lr=0.05", "optimizer=sgd", "optimizer.momentum=0.9", "scheduler=constant,cosine,onecycle"),
    "resident": ("lr=0.01", "loader=resident", "scheduler=constant,onecycle", "checkpoint.keep_best=val_loss"),
}
_COLUMNS = ("run", "status", "reason", "epoch", "epochs", "loss", "accuracy", "val_loss", "val_accuracy", "samples")


@dataclass(frozen=True)
class Sweep:
    """A sweep of one of the variants, and its command, in a folder with the model.

    `targets` are the processes that may be killed, `unit` the plural of what must not be lost or run twice. The columns
    of its tables and the files of its runs that are named here must not differ after kills.
    """

    variants: ClassVar[Mapping[str, Sequence[str]]] = _VARIANTS
    targets: ClassVar[Sequence[str]] = ("driver", "run", "group")
    unit: ClassVar[str] = "epochs"
    columns: ClassVar[Sequence[str]] = _COLUMNS
    own_files: ClassVar[Sequence[str]] = ()

    folder: Path
    variant: str
    name: str

    @property
    def paths(self) -> SweepPaths:
        return SweepPaths(self.folder / "outputs" / self.name)

    @property
    def log_path(self) -> Path:
        return self.folder / f"{self.name}.log"

    def start(self) -> Process:
        """Start the command in a new process group; its output goes to `log_path`."""
        (self.folder / "killable.py").write_text(MODEL)
        words = ["-m", *_BASE, *self.variants[self.variant], f"name={self.name}"]
        return start(self.folder, *words, log=self.log_path)

    def run(self) -> float:
        """Run the command to its end; return the seconds since its first run began.

        Raises `RuntimeError` if it fails.
        """
        process = self.start()
        with killed_at_exit(process):
            wait_until(lambda: process.poll() is not None or self.running(), "a running run")
            began = time.monotonic()
            if process.wait(DEADLINE_SECONDS) != 0:
                raise RuntimeError(f"the sweep failed:\n{self.log()}")
            return time.monotonic() - began

    def log(self) -> str:
        return self.log_path.read_text()

    def records(self) -> list[RunRecord]:
        return [run.record for run in read_sweep(self.paths).runs]

    def running(self) -> list[RunRecord]:
        return [record for record in self.records() if record.status is Status.RUNNING]

    def run_paths(self) -> list[RunPaths]:
        return [run.paths for run in read_sweep(self.paths).runs]

    def finished_work(self, record: RunRecord) -> Mapping[int, object]:
        """Return what is stored of each finished epoch of a run, by its number."""
        return {epoch.epoch: epoch for epoch in read_epochs(self.paths.run(record.name))}

    def untrue_states(self, victims: Mapping[str, set[str]]) -> Iterator[str]:
        """Yield each state that is not true, by what the program itself has noted; this one notes too little."""
        yield from ()

    def program_of(self, record: RunRecord) -> psutil.Process | None:
        """Return the process of a run's program, where that is not the process of the run."""
        return None

    def begun(self) -> list[tuple[str, int]]:
        """Return each beginning of an epoch, or of another unit of work: the run's name and its number."""
        return self.noted("begun.txt")

    def noted(self, file: str) -> list[tuple[str, int]]:
        """Return what runs have noted in a file of the sweep, a line each: the run's name and a number."""
        path = self.paths.root / file
        lines = path.read_text().splitlines() if path.exists() else []
        names = {run.paths.name: run.record.name for run in read_sweep(self.paths).runs}
        return [(names.get(run, run), int(number)) for run, number in (line.rsplit(" ", 1) for line in lines)]
