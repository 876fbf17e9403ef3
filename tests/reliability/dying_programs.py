"""Programs whose cells die as their setting `way` demands: the built-in job, a Hydra application and a script."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from foreign import MAIN
from sweeps import DYING, TINY

__all__ = ["APPLICATION", "JOB", "REPLACED", "SCRIPT", "DyingProgram"]

_SECONDS = 20  # per run, where it hangs; a healthy one needs one or two


@dataclass(frozen=True)
class DyingProgram:
    """A program: its files, its setting that names a way to die, and the messages in which it differs from the job.

    `words` makes its Python command line: of a launcher's name, its overrides, the ways, and whether the first one
    hangs.
    """

    name: str
    files: Mapping[str, str]
    setting: str
    words: Callable[[str, Sequence[str], str, bool], list[str]]
    messages: Mapping[str, str] = field(default_factory=dict)


# Neither of the two programs below imports this package.
_WORK = """
import os, signal, sys, time

def work(way):
    globals().get(way, lambda: None)()
    return float("nan") if way == "diverges" else 0.5

def raises():
    raise ValueError("this model wants no data")

def exits():
    sys.exit(3)

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def segfaults():
    os.kill(os.getpid(), signal.SIGSEGV)

def hangs():
    time.sleep(600)

def memory():
    raise MemoryError("all is full")

def loader():
    import psutil, torch
    from torch.utils.data import DataLoader, TensorDataset

    for _ in DataLoader(TensorDataset(torch.zeros(20, 1)), num_workers=1):
        for worker in psutil.Process().children():
            worker.kill()
"""

_APPLICATION = """
import hydra
from dying_work import work

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    return {"loss": work(cfg.way)}

if __name__ == "__main__":
    main()
"""

_SCRIPT = """
import argparse

from dying_work import work

parser = argparse.ArgumentParser()
parser.add_argument("--way")
print("loss", work(parser.parse_args().way))
"""


def _job_words(launcher: str, overrides: Sequence[str], ways: str, hangs: bool) -> list[str]:
    return [
        "-m",
        "runmanager",
        "-m",
        *TINY,
        f"+model.way={ways}",
        f"hydra/launcher={launcher}",
        *overrides,
        "name=four",
        "hydra.sweeper.order=grid",  # the dying cell comes first
    ]


def _application_words(launcher: str, overrides: Sequence[str], ways: str, hangs: bool) -> list[str]:
    name = {"local": "runmanager"}.get(launcher, f"runmanager_{launcher}")
    limit = [f"hydra.launcher.timeout={_SECONDS}"] if hangs else []
    sweeper = ["hydra/sweeper=runmanager", "hydra.sweeper.name=four"]
    return ["train.py", "-m", *sweeper, f"hydra/launcher={name}", *overrides, *limit, f"way={ways}"]


def _script_words(launcher: str, overrides: Sequence[str], ways: str, hangs: bool) -> list[str]:
    names = [each.removeprefix("hydra.launcher.") for each in overrides]
    settings = [
        word
        for each in names
        for word in (("--workers", each[8:]) if each.startswith("workers=") else ("--launcher-option", each))
    ]
    limit = ["--timeout", str(_SECONDS)] if hangs else []
    options = ["--name", "four", "--launcher", launcher, *settings, *limit, "--scalar", r"loss=loss (\S+)"]
    return ["-c", MAIN, "sweep", *options, "train.py", f"way={ways}"]


JOB = DyingProgram("job", {"own.py": DYING.read_text()}, "model.way", _job_words)
APPLICATION = DyingProgram(
    "application",
    {"train.py": _APPLICATION, "dying_work.py": _WORK, "conf/config.yaml": "way: fine\n"},
    "way",
    _application_words,
    {"diverges": "loss is not finite"},
)
# Its cells begin by replacing their process by the same program, as for another PYTHONHASHSEED.
REPLACED = replace(
    APPLICATION,
    name="replaced application",
    files={
        **APPLICATION.files,
        "train.py": _APPLICATION.replace(
            "    return",
            """    import os, sys
    if os.environ.setdefault("PYTHONHASHSEED", "random") == "random":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "7"})
    return""",
        ),
    },
)
SCRIPT = DyingProgram(
    "script",
    {"train.py": _SCRIPT, "dying_work.py": _WORK},
    "way",
    _script_words,
    {"diverges": "loss is not finite", "exits": "ended with status 3"},
)
