"""Give one command to several drivers at the same moment; report whether each ends well and each cell ran once.

python tests/reliability/drivers.py --program script --drivers 4 --tries 40
"""

import argparse
import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from commands import DEADLINE_SECONDS, killed_at_exit, start_python
from foreign import MAIN
from sweeps import TINY

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep

_CELLS = "1,2,3,4"
_WORK = """
import os

def work(number):
    handle = os.open("begun.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{number} {os.getpid()}\\n".encode())
    os.close(handle)
    return 1 / int(number)
"""
_APPLICATION = """
import hydra
from shared_work import work

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    return {"loss": work(cfg.number)}

if __name__ == "__main__":
    main()
"""
_SCRIPT = """
import sys
from shared_work import work

print("loss", work(sys.argv[-1].rpartition("=")[2]))
"""
_MODEL = """
import os, torch
from shared_work import work

class Net(torch.nn.Module):
    def __init__(self, in_shape, num_classes, number):
        super().__init__()
        self.linear = torch.nn.Linear(in_shape[0] * in_shape[1] * in_shape[2], num_classes)
        self.number = number

    def forward(self, images):
        if self.training and self.number and "RUNMANAGER_OWN_PROCESS" in os.environ:
            work(self.number)
            self.number = 0
        return self.linear(images.flatten(1))
"""
_SWEEPER = ("hydra/sweeper=runmanager", "hydra.sweeper.name=shared", "hydra/launcher=runmanager")
COMMANDS = {
    "job": ["-m", "runmanager", "-m", *TINY, f"+model.number={_CELLS}", "epochs=1", "name=shared"],
    "application": ["train.py", "-m", *_SWEEPER, f"number={_CELLS}"],
    "script": ["-c", MAIN, "sweep", "--name", "shared", "--scalar", r"loss=loss (\S+)", "train.py", f"number={_CELLS}"],
}
_FILES = {
    "job": {"own.py": _MODEL},
    "application": {"train.py": _APPLICATION, "conf/config.yaml": "number: 1\n"},
    "script": {"train.py": _SCRIPT},
}


@dataclass(frozen=True)
class Shared:
    """How several drivers of one sweep ended: their statuses, the states of its cells, how often each cell began."""

    statuses: tuple[int, ...]
    states: dict[str, str]
    begun: dict[str, int]
    logs: str

    @property
    def is_as_promised(self) -> bool:
        """Whether every driver ended with status 0, and every cell finished, in one process."""
        finished = [*self.states.values()] == ["finished"] * len(_CELLS.split(","))
        return not any(self.statuses) and finished and set(self.begun.values()) == {1}


def try_drivers(folder: Path, program: str, number: int) -> Shared:
    """Let so many drivers run the program's cells from `folder`, which must not exist yet."""
    for name, text in ({"shared_work.py": _WORK} | _FILES[program]).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    logs = [folder / f"log-{each}" for each in range(number)]
    with contextlib.ExitStack() as stack:
        drivers = [start_python(folder, *COMMANDS[program], log=log) for log in logs]
        for each in drivers:
            stack.enter_context(killed_at_exit(each))
        statuses = tuple(each.wait(DEADLINE_SECONDS) for each in drivers)
    runs = read_sweep(SweepPaths(folder / "outputs" / "shared")).runs
    states = {run.record.name: str(run.record.status) for run in runs}
    # A process may work twice: the built-in job runs a step on a copy of the network first.
    begun = Counter(line.split()[0] for line in set((folder / "begun.txt").read_text().splitlines()))
    return Shared(statuses, states, dict(begun), "\n".join(log.read_text() for log in logs))


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a try was not as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", choices=COMMANDS, default="script")
    parser.add_argument("--drivers", type=int, default=2)
    parser.add_argument("--tries", type=int, default=40)
    options = parser.parse_args(words)
    kept = 0
    with tempfile.TemporaryDirectory() as temporary:
        for each in range(options.tries):
            seen = try_drivers(Path(temporary) / str(each), options.program, options.drivers)
            kept += seen.is_as_promised
            if not seen.is_as_promised:
                print(f"try {each}: {seen.statuses}, {seen.states}, {seen.begun}\n{seen.logs}", flush=True)
    print(f"{options.program}, {options.drivers} drivers: {kept} of {options.tries} tries as promised")
    return int(kept < options.tries)


if __name__ == "__main__":
    sys.exit(main())
