"""Programs whose cells take a stop as their setting `way` demands: the built-in job, a Hydra application and a script.

A cell writes the file `ready-<way>` and then waits to be stopped. Where the file `go-on` is, it ends by itself; where
the file `calm` is, it ends well at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from foreign import MAIN
from sweeps import TINY

__all__ = ["APPLICATION", "FINISHED", "INTERRUPTED", "JOB", "LOGS", "SCRIPT", "StoppedProgram"]

INTERRUPTED, FINISHED = ("killed", "interrupted"), ("finished", None)

# What a cell does when it is asked to stop; whatever that is, it has the reason of the stop.
_WAYS = ("exits", "leaves", "flags", "catches", "raises", "ignores", "blocks", "nothing")

LOGS = {
    "broken_off": INTERRUPTED,
    "caught": INTERRUPTED,
    "last_epoch": FINISHED,
    "after_all": FINISHED,
    "ended": FINISHED,
}
"""Ways of programs that log, and the promised states: an end after all planned epochs, or before the stop, counts."""


@dataclass(frozen=True)
class StoppedProgram:
    """A program: its files, its setting that names a way, the ways with their promised states.

    `words` makes its Python command line, of the ways and of options of the launcher.
    """

    name: str
    files: Mapping[str, str]
    setting: str
    ways: Mapping[str, tuple[str, str | None]]
    words: Callable[[Sequence[str], Mapping[str, str]], list[str]]


# Imports this package only for the ways of LOGS.
_WORK = """
import os, signal, sys, time
from pathlib import Path
from signal import SIG_BLOCK, SIG_IGN, SIGTERM, pthread_sigmask
from signal import signal as handle

asked = []

def work(way):
    if Path("calm").exists():
        return 0.5
    return globals()[way](way)

def wait(way, until=lambda: asked):
    Path(f"ready-{way}").touch()
    deadline = time.monotonic() + 300
    while not until() and not Path("go-on").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(way)
        time.sleep(0.02)
    return 0.25

def exits(way):
    handle(SIGTERM, lambda *_: sys.exit(0))
    return wait(way)

def leaves(way):
    handle(SIGTERM, lambda *_: os._exit(0))
    return wait(way)

def flags(way):
    handle(SIGTERM, lambda *_: asked.append(1))
    return wait(way)

def catches(way):
    try:
        return wait(way)
    except KeyboardInterrupt:
        return 0.25

def raises(way):
    def refuse(*_):
        raise RuntimeError("not now")
    handle(SIGTERM, refuse)
    return wait(way)

def ignores(way):
    handle(SIGTERM, SIG_IGN)
    return wait(way)

def blocks(way):
    pthread_sigmask(SIG_BLOCK, [SIGTERM])
    return wait(way)

def nothing(way):
    return wait(way)

def one(way):
    return 0.5

def broken_off(way):
    import runmanager

    handle(SIGTERM, lambda *_: asked.append(1))
    run = runmanager.start_run()
    for epoch in run.epochs(2):
        run.log(val_loss=0.25)
        wait(way)
        break
    run.end()
    return 0.25

def caught(way):
    import runmanager

    handle(SIGTERM, refused)
    try:
        with runmanager.start_run() as run:
            for epoch in run.epochs(2):
                run.log(val_loss=0.25)
                wait(way)
    except KeyError:
        sys.exit(0)

def refused(*_):
    raise KeyError("stopped")

def last_epoch(way):
    import runmanager

    handle(SIGTERM, lambda *_: asked.append(1))
    with runmanager.start_run() as run:
        for epoch in run.epochs(2):
            run.log(val_loss=0.25)
            if epoch.number == 2:
                wait(way)

def after_all(way):
    import runmanager

    run = runmanager.start_run()
    for epoch in run.epochs(1):
        run.log(val_loss=0.25)
    wait(way)

def ended(way):
    import runmanager

    handle(SIGTERM, lambda *_: sys.exit(0))
    with runmanager.start_run() as run:
        run.log(val_loss=0.25)
    wait(way)
"""

_APPLICATION = """
import hydra
from stopped_work import work

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    loss = work(cfg.way)
    return None if loss is None else {"loss": loss}

if __name__ == "__main__":
    main()
"""

_SCRIPT = """
import argparse

from stopped_work import work

parser = argparse.ArgumentParser()
parser.add_argument("--way")
parser.add_argument("--device")
print("loss", work(parser.parse_args().way), flush=True)
"""

# Waits in the last step of the first epoch, or in the first one of the last epoch.
_MODEL = """
import os, torch
import stopped_work

class Net(torch.nn.Module):
    def __init__(self, in_shape, num_classes, way):
        super().__init__()
        self.linear = torch.nn.Linear(in_shape[0] * in_shape[1] * in_shape[2], num_classes)
        self.way, self.steps = way, 0

    def forward(self, images):
        if self.training:
            self.steps += 1
            if self.steps == (3 if self.way == "last" else 2) and "RUNMANAGER_OWN_PROCESS" in os.environ:
                stopped_work.work(self.way)
        return self.linear(images.flatten(1))
"""
_OF_MODEL = """
def last(way):
    earlier = signal.getsignal(SIGTERM)
    handle(SIGTERM, lambda *given: (earlier(*given), asked.append(1)))
    wait(way)

polite = last
"""


def _job_words(ways: Sequence[str], options: Mapping[str, str]) -> list[str]:
    launcher = [f"hydra.launcher.{name}={value}" for name, value in options.items()]
    return [
        "-m",
        "runmanager",
        "-m",
        *TINY,
        f"+model.way={','.join(ways)}",
        *launcher,
        "name=stopped",
        "--order",
        "grid",
    ]


def _application_words(ways: Sequence[str], options: Mapping[str, str]) -> list[str]:
    sweeper = ["hydra/sweeper=runmanager", "hydra.sweeper.name=stopped", "hydra/launcher=runmanager"]
    launcher = [f"hydra.launcher.{name}={value}" for name, value in options.items()]
    return ["train.py", "-m", *sweeper, "hydra.sweeper.order=grid", *launcher, f"way={','.join(ways)}"]


def _script_words(ways: Sequence[str], options: Mapping[str, str]) -> list[str]:
    names = {"processes_per_run": "processes"}
    launcher = [f"--{names.get(name, name).replace('_', '-')}={value}" for name, value in options.items()]
    scalar = ["--scalar", r"loss=loss (\S+)"]
    return [
        "-c",
        MAIN,
        "sweep",
        "--name",
        "stopped",
        "--order",
        "grid",
        *launcher,
        *scalar,
        "train.py",
        f"way={','.join(ways)}",
    ]


_PROMISED = dict.fromkeys(_WAYS, INTERRUPTED)
JOB = StoppedProgram(
    "job",
    {"own.py": _MODEL, "stopped_work.py": _WORK + _OF_MODEL},
    "model.way",
    {**dict.fromkeys(("exits", "leaves", "raises", "polite"), INTERRUPTED), "last": FINISHED},
    _job_words,
)
APPLICATION = StoppedProgram(
    "application",
    {"train.py": _APPLICATION, "stopped_work.py": _WORK, "conf/config.yaml": "way: one\n"},
    "way",
    _PROMISED,
    _application_words,
)
SCRIPT = StoppedProgram("script", {"train.py": _SCRIPT, "stopped_work.py": _WORK}, "way", _PROMISED, _script_words)
