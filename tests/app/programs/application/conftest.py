"""A Hydra application that does not import the package, in a folder of its own, and its command in a new process."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import read_sweep

from ....processes import wait_for_output

VARIABLES = {
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "200",
    # What Hydra 1.4 says of every application.
    "PYTHONWARNINGS": "ignore:The version_base parameter is deprecated",
}

# It never imports runmanager. `way` says how a cell ends; where the file `calm` exists, every cell ends well.
APPLICATION = """
import logging
import os
import signal
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from parts import halved

log = logging.getLogger(__name__)


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig):
    folder = Path(HydraConfig.get().runtime.output_dir)
    with Path("started.txt").open("a") as file:
        file.write(f"{cfg.lr} {cfg.way} {os.environ.get('RUNMANAGER_ATTEMPT')}\\n")
    print("printed by the task")
    log.info("logged by the task at lr=%s in %s", cfg.lr, folder.name)
    assert os.environ.get("RUNMANAGER_RUN", str(folder)) == str(folder)
    (folder / "own.txt").write_text(str(cfg.get("ckpt_path")))
    way = "fine" if Path("calm").exists() else cfg.way
    if way == "raises":
        raise ValueError("an unlucky rate")
    if way == "exits":
        sys.exit(3)
    if way == "stops":
        sys.exit(0)
    if way == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "needs memory":
        raise MemoryError("no room")
    if way == "diverges":
        return {"val_loss": float("nan")}
    return {"score": halved(cfg.lr), "loss": cfg.lr, "words": "ignored"}


if __name__ == "__main__":
    main()
"""
UNGUARDED = APPLICATION.replace('if __name__ == "__main__":\n    main()', "main()")
PARTS = "def halved(number):\n    return number / 2\n"
CONFIG = """
defaults: [_self_, {model: small}]
lr: 0.1
way: fine
name: a setting of the application
checkpoint: {every: 2}
out: ${hydra:runtime.output_dir}/x
when: ${now:%H-%M-%S-%f}
copy: ${out}
kind: ${hydra:runtime.choices.model}
"""
MODELS = {"small": "width: 8\n", "big": "width: 80\n"}


@dataclass
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str


@dataclass
class Application:
    """The application in its folder."""

    folder: Path

    def command(self, *words: str, script: str = "train.py") -> list[str]:
        return [sys.executable, script, "-m", "hydra/sweeper=runmanager", *words]

    def run(self, *words: str, script: str = "train.py", **variables: str) -> Ended:
        process = subprocess.Popen(
            self.command(*words, script=script),
            cwd=self.folder,
            env={**os.environ, **VARIABLES, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        out, err = wait_for_output(process)
        return Ended(process.returncode, out, err)

    def sweep(self, name: str) -> SweepPaths:
        return SweepPaths(self.folder / "outputs" / name)

    def records(self, name: str) -> list[RunRecord]:
        return [run.record for run in read_sweep(self.sweep(name)).runs]

    def by_setting(self, name: str, setting: str) -> dict[Any, RunRecord]:
        return {each.settings[setting]: each for each in self.records(name)}

    def table(self, name: str) -> list[dict[str, str]]:
        with self.sweep(name).results("csv").open() as file:
            return list(csv.DictReader(file))

    def started(self) -> list[str]:
        path = self.folder / "started.txt"
        return path.read_text().splitlines() if path.exists() else []

    def plan(self, name: str) -> dict[str, Any]:
        plan: dict[str, Any] = json.loads(self.sweep(name).record.read_text())
        return plan


@pytest.fixture
def application(tmp_path: Path) -> Application:
    (tmp_path / "train.py").write_text(APPLICATION)
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "config.yaml").write_text(CONFIG)
    for name, text in MODELS.items():
        (tmp_path / "conf" / "model" / f"{name}.yaml").write_text(text)
    return Application(tmp_path)


@pytest.fixture
def write_script(application: Application) -> Callable[[str, str], None]:
    def write(name: str, text: str) -> None:
        (application.folder / name).write_text(text)

    return write
