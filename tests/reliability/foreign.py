"""Programs of users as what tests/reliability/kills.py kills: a Hydra application, a script, and a loop by steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import psutil
from commands import start_python
from programs import Process, Sweep

from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status

__all__ = ["MAIN", "Application", "ApplicationSearch", "Script", "ScriptSearch", "Steps"]

MAIN = "import sys; from runmanager.cli.main import run_command; sys.exit(run_command(sys.argv[1:]))"
"""The command `runmanager`, for `python -c`."""

# The work of a cell, which never imports runmanager. It notes its beginning and its end, so that what is recorded is
# checked independently of the records, and saves its state after each step, as a program that can resume does.
_WORK = """
import json, os, time
from pathlib import Path

def work(folder, rate, resume, show):
    note(folder, "begun.txt")
    state = json.loads(Path(resume).read_text()) if resume else {"step": 0, "loss": 1.0, "attempts": []}
    state["attempts"].append(int(os.environ["RUNMANAGER_ATTEMPT"]))
    while state["step"] < 25:
        time.sleep(0.04)  # a step of training
        state |= {"step": state["step"] + 1, "loss": state["loss"] * (1 - rate)}
        show(f"loss {state['loss']}")
        (folder / "last.json.new").write_text(json.dumps(state))
        os.replace(folder / "last.json.new", folder / "last.json")
    show(f"loss {state['loss']}")  # again: what it printed while its supervisor died may have been in the pipe
    (folder / "weights.json").write_text(json.dumps({"steps": state["step"], "loss": state["loss"]}))
    note(folder, "ended.txt")
    return state["loss"]

def note(folder, name):
    handle = os.open(folder.parents[1] / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{folder.name} 1\\n".encode())
    os.close(handle)
"""

_APPLICATION = """
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from killable_work import work

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    loss = work(Path(HydraConfig.get().runtime.output_dir), cfg.rate, cfg.resume, print)
    return {"loss": loss, "score": 1 - loss}

if __name__ == "__main__":
    main()
"""

_SCRIPT = """
import argparse
from pathlib import Path

from killable_work import work

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--out", type=Path)
parser.add_argument("--resume")
args = parser.parse_args()
work(args.out, args.rate, args.resume, print)
"""

# A record ends with each fourth step; its beginning is noted under the number of that step.
_STEPS = """
import argparse, os, random, time
from pathlib import Path

import numpy
import torch
from torch import nn

import runmanager

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
args = parser.parse_args()
folder = Path(os.environ["RUNMANAGER_RUN"])

def note(name, number):
    with (folder.parents[1] / name).open("a") as file:
        file.write(f"{folder.name} {number}\\n")

random.seed(0)
numpy.random.seed(0)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=args.rate)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
data = torch.randn(120, 5, 4, generator=torch.Generator().manual_seed(1))
run = runmanager.start_run(model, optimizer=optimizer, state={"scheduler": scheduler}, record_every=4)
with run:
    for number, batch in enumerate(run.batches(data[run.num_steps :]), start=run.num_steps):
        if number % 4 == 0:
            note("begun.txt", number + 4)
        time.sleep(0.02)  # a step takes its time
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        run.track(loss, samples=5)
        if number == len(data) - 1:
            note("ended.txt", 1)
"""


@dataclass(frozen=True)
class Application(Sweep):
    """A sweep of a Hydra application whose cells begin again after a kill, or resume."""

    variants: ClassVar[Mapping[str, Sequence[str]]] = {
        "again": (),
        "resumed": ("hydra.sweeper.resume_with='resume=${hydra.runtime.output_dir}/last.json'",),
    }
    unit: ClassVar[str] = "cells"
    columns: ClassVar[Sequence[str]] = ("run", "rate", "status", "reason", "epochs", "loss", "score")
    own_files: ClassVar[Sequence[str]] = ("weights.json",)
    rates: ClassVar[str] = "0.1,0.2,0.3,0.4,0.5,0.6"

    def start(self) -> Process:
        """Start the command in a new process group; its output goes to `log_path`."""
        self._write()
        return start_python(self.folder, *self._words(), log=self.log_path)

    def _write(self) -> None:
        (self.folder / "conf").mkdir(exist_ok=True)
        (self.folder / "conf" / "config.yaml").write_text("rate: 0.1\nresume: null\n")
        (self.folder / "killable_work.py").write_text(_WORK)
        (self.folder / "train.py").write_text(_APPLICATION)

    def _words(self) -> tuple[str, ...]:
        sweeper = ("hydra/sweeper=runmanager", f"hydra.sweeper.name={self.name}", "hydra.launcher.workers=2")
        return "train.py", "-m", *sweeper, *self.variants[self.variant], f"rate={self.rates}"

    def finished_work(self, record: RunRecord) -> Mapping[int, object]:
        """Return the record of a finished cell, whose only unit of work is the cell itself."""
        return {1: record} if record.status is Status.FINISHED else {}

    def untrue_states(self, victims: Mapping[str, set[str]]) -> Iterator[str]:
        """Yield each state that is not true: a cell reads `finished` that did not end, or a dead one reads otherwise.

        `victims` has the states that the killed runs may have, if they had not ended before.
        """
        ended = {name for name, _ in self.noted("ended.txt")}
        for record in self.records():
            is_finished = record.status is Status.FINISHED
            state = f"{record.status} ({record.reason})"
            if (is_finished and record.name not in ended) or (
                not is_finished and state not in victims.get(record.name, {state})
            ):
                yield f"{self.name}: {record.name} reads {state}"


@dataclass(frozen=True)
class Script(Application):
    """A sweep of a script that prints its loss."""

    variants: ClassVar[Mapping[str, Sequence[str]]] = {
        "again": (),
        "resumed": ("--resume-with=resume={run_dir}/last.json",),
    }
    targets: ClassVar[Sequence[str]] = ("driver", "run", "group", "program")
    columns: ClassVar[Sequence[str]] = ("run", "rate", "status", "reason", "epochs", "loss")

    def _write(self) -> None:
        (self.folder / "killable_work.py").write_text(_WORK)
        (self.folder / "train.py").write_text(_SCRIPT)

    def _words(self) -> tuple[str, ...]:
        options = ("--name", self.name, "--workers", "2", "--scalar", r"loss=loss (\S+)", *self.variants[self.variant])
        return "-c", MAIN, "sweep", *options, "train.py", f"rate={self.rates}", "out={run_dir}"

    def program_of(self, record: RunRecord) -> psutil.Process | None:
        """Return the process of the script itself; None if it is not running."""
        try:
            children = psutil.Process(record.owner.pid).children() if record.owner else []
            return next((each for each in children if "train.py" in each.cmdline()), None)
        except psutil.NoSuchProcess:
            return None


_SPACE = "rate=interval(0.1,0.6)"


@dataclass(frozen=True)
class ScriptSearch(Script):
    """A search over a script's setting, one trial at a time: what it tries then follows from the results alone.

    A killed run would be a trial without a result, so only drivers are killed.
    """

    variants: ClassVar[Mapping[str, Sequence[str]]] = {"again": ()}
    targets: ClassVar[Sequence[str]] = ("driver", "group")

    def _words(self) -> tuple[str, ...]:
        asked = ("--search", "tpe", "--trials", "4", "--metric", "loss", "--scalar", r"loss=loss (\S+)")
        return "-c", MAIN, "sweep", "--name", self.name, *asked, "train.py", _SPACE, "out={run_dir}"


@dataclass(frozen=True)
class ApplicationSearch(Application):
    """The same of a Hydra application."""

    variants: ClassVar[Mapping[str, Sequence[str]]] = {"again": ()}
    targets: ClassVar[Sequence[str]] = ("driver", "group")

    def _words(self) -> tuple[str, ...]:
        asked = ("hydra.sweeper.search=tpe", "hydra.sweeper.trials=4", "hydra.sweeper.metric=loss")
        return "train.py", "-m", "hydra/sweeper=runmanager", f"hydra.sweeper.name={self.name}", *asked, _SPACE


@dataclass(frozen=True)
class SweepSearch(Sweep):
    """The same of the built-in job."""

    variants: ClassVar[Mapping[str, Sequence[str]]] = {
        "again": (
            *("lr=interval(0.001,0.1)", "hydra.launcher.workers=1"),
            *("hydra.sweeper.search=tpe", "hydra.sweeper.trials=4", "hydra.sweeper.metric=val_loss"),
        )
    }
    targets: ClassVar[Sequence[str]] = ("driver", "group")


@dataclass(frozen=True)
class Steps(Script):
    """A sweep of a script with a loop by steps that continues from its `state`."""

    variants: ClassVar[Mapping[str, Sequence[str]]] = {"state": ()}
    unit: ClassVar[str] = "records"
    columns: ClassVar[Sequence[str]] = ("run", "rate", "status", "reason", "epoch", "epochs", "loss", "samples")
    own_files: ClassVar[Sequence[str]] = ()
    rates: ClassVar[str] = "0.01,0.02,0.03"

    def _write(self) -> None:
        (self.folder / "train.py").write_text(_STEPS)

    def _words(self) -> tuple[str, ...]:
        return "-c", MAIN, "sweep", "--name", self.name, "--workers", "2", "train.py", f"rate={self.rates}"

    def finished_work(self, record: RunRecord) -> Mapping[int, object]:
        """Return the records of intervals, as those of epochs."""
        return Sweep.finished_work(self, record)
