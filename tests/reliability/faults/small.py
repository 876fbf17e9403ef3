"""The programs that faults are tried with: a small sweep of the built-in job, and a custom loop, on random data."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from commands import ROOT, environment, start
from forked_python import start_forked
from loops import LOOP, Loop
from programs import Process, Sweep

from runmanager.records.run.status import Status
from runmanager.records.storage.reader import read_sweep

__all__ = [
    "ERRORS",
    "INJECTED",
    "NUM_EPOCHS",
    "TAKING_ROOM",
    "SmallLoop",
    "SmallSweep",
    "read_journal",
    "seam_variables",
    "untrue_states",
]

INJECTED = Path(__file__).parent / "injected"
"""The folder of the module that injects faults into processes."""

NUM_EPOCHS = 6

_PACE = 'float(os.environ.get("PACE", "0").split(",")[({epoch} - 1) % len(os.environ.get("PACE", "0").split(","))])'
_MODEL = f"""
import os, time
import torch

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
            epoch, step = divmod(int(self.steps), 4)
            self.steps += 1
            if step == 0:
                time.sleep({_PACE.format(epoch="(epoch + 1)")})
        return self.layers(images)
"""
_WORDS = (
    *("dataset=fake", "dataset.size=64", "dataset.val_size=32", "dataset.in_shape=[1,8,8]", "batch_size=16"),
    *("model=custom", "model._target_=small_net.Net", "device=cpu", "tensorboard.graph=false"),
    *("lr=0.01,0.02", "checkpoint.keep_best=val_loss"),
)


@dataclass(frozen=True)
class SmallSweep(Sweep):
    """Two cells of the built-in job, with `variables` in the environment, in a fork or started by `wrapper`."""

    variants: ClassVar[Mapping[str, Sequence[str]]] = {
        "one": (),
        "two": ("hydra.launcher.workers=2",),
        "loading": ("num_workers=1",),
    }
    num_cells: ClassVar[int] = 2

    num_epochs: int = NUM_EPOCHS
    variables: Mapping[str, str] = field(default_factory=dict)
    wrapper: Sequence[str] = ()

    def start(self) -> Process:
        """Start the command in a new process group; its output goes to `log_path`."""
        (self.folder / "small_net.py").write_text(_MODEL)
        words = ["-m", *_WORDS, f"epochs={self.num_epochs}", *self.variants[self.variant], f"name={self.name}"]
        if self.wrapper:
            return start(self.folder, *words, log=self.log_path, variables=self.variables, wrapper=self.wrapper)
        variables = environment(self.variables)
        call = ["-m", "runmanager", *words]
        return start_forked(call, folder=self.folder, environment=variables, log=self.log_path)


@dataclass(frozen=True)
class SmallLoop(Loop):
    """The custom loop of loops.py, in a fork that shares its imports."""

    variants: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(("generator", "shuffle"), ())
    num_cells: ClassVar[int] = 1

    num_epochs: int = 20
    variables: Mapping[str, str] = field(default_factory=dict)

    def start(self) -> Process:
        """Start the program as a fork."""
        pace = f"        time.sleep({_PACE.format(epoch='epoch.number')})\n"
        loop = LOOP.replace("        die(epoch.number, STEPS + 1)\n", pace).replace("import os,", "import os, time,")
        (self.folder / "loop.py").write_text(loop.replace("EPOCHS, BATCH = 20", f"EPOCHS, BATCH = {self.num_epochs}"))
        variables = environment(self.variables)
        return start_forked(self._words(), folder=self.folder, environment=variables, log=self.log_path)

    def _words(self) -> tuple[str, ...]:
        return "loop.py", str(self.paths.root), self.variant


def seam_variables(folder: Path, state: Path, **options: Any) -> dict[str, str]:
    """Return the environment that watches or refuses what is changed in outputs/ of `folder` (see `fault_seam`)."""
    spec = {"folder": str(folder), "top": "outputs", "state": str(state), **options}
    path = os.pathsep.join(map(str, (INJECTED, ROOT)))
    return {"FAULT_SEAM": json.dumps(spec), "PYTHONPATH": path}


def untrue_states(sweep: Sweep, *, status: int | None = None) -> list[str]:
    """Return what is untrue in a sweep of which no process runs: damaged, `running`, or `finished` too early.

    `status` is that of the command, which says whether all cells have finished.
    """
    contents = read_sweep(sweep.paths)
    untrue = [f"{sweep.name}: damaged: {each.message}" for each in contents.damaged]
    for run in contents.runs:
        numbers = [epoch.epoch for epoch in run.epochs]
        if run.record.status is Status.RUNNING:
            untrue.append(f"{sweep.name}: {run.name} reads running")
        if numbers != list(range(1, len(numbers) + 1)):
            untrue.append(f"{sweep.name}: {run.name} has the epochs {numbers}")
        if run.record.status is Status.FINISHED and len(numbers) != sweep.num_epochs:
            untrue.append(f"{sweep.name}: {run.name} reads finished after {len(numbers)} epochs")
    finished = sum(run.record.status is Status.FINISHED for run in contents.runs)
    if status == 0 and finished != sweep.num_cells:
        untrue.append(f"{sweep.name}: status 0 with {finished} of {sweep.num_cells} finished")
    return untrue


sys.path.insert(0, str(INJECTED))
import fault_seam  # noqa: E402

TAKING_ROOM, ERRORS = fault_seam.TAKING_ROOM, fault_seam.ERRORS
read_journal = fault_seam.read_journal
