"""`hydra/launcher=local` with another Hydra application."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import pytest

APP = """
import json
import logging
import os
import signal
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from runmanager.launching.hydra_launcher import register

register()
log = logging.getLogger(__name__)


def is_multirun() -> bool:
    return HydraConfig.get().mode.name == "MULTIRUN"


@hydra.main(version_base=None, config_path="settings", config_name="main")
def train(cfg: DictConfig) -> float:
    log.info("lr is %s", cfg.lr)
    facts = {
        "lr": cfg.lr,
        "width": cfg.net.width,
        "pid": os.getpid(),
        "num": HydraConfig.get().job.num if is_multirun() else "none",
        "folder": HydraConfig.get().runtime.output_dir,
        "variable": os.environ.get("A_VARIABLE"),
    }
    Path(f"{os.environ['FACTS']}/{cfg.lr}.json").write_text(json.dumps(facts))
    if cfg.lr == 13:
        raise ValueError("an unlucky rate")
    if cfg.lr == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    if cfg.lr == 3:
        sys.exit(3)
    return cfg.lr


if __name__ == "__main__":
    print("driver", os.getpid())
    train()
"""
SETTINGS = """
defaults:
  - _self_
  - override hydra/launcher: local
lr: 1
net:
  width: 8
hydra:
  job:
    env_set:
      A_VARIABLE: passed on
"""


class Application:
    """An application: its folder, its commands, and the facts that its jobs wrote."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "app.py", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        files = (self.folder / "facts").glob("*.json")
        return {path.stem: json.loads(path.read_text()) for path in files}


@pytest.fixture
def application(tmp_path: Path, importable_everywhere: None) -> Application:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "main.yaml").write_text(SETTINGS)
    (tmp_path / "facts").mkdir()
    return Application(tmp_path, {**os.environ, "FACTS": str(tmp_path / "facts")})


def driver_of(done: subprocess.CompletedProcess[str]) -> int:
    return int(done.stdout.split()[1])


def test_a_grid_runs_each_cell_in_its_own_process(application: Application) -> None:
    done = application("-m", "lr=1,2", "net.width=16", "hydra.launcher.preload=[]")
    assert done.returncode == 0, done.stderr
    facts = application.facts
    assert {name: (each["width"], each["num"], each["variable"]) for name, each in facts.items()} == {
        "1": (16, 0, "passed on"),
        "2": (16, 1, "passed on"),
    }
    assert len({driver_of(done), *(each["pid"] for each in facts.values())}) == 3


def test_the_jobs_of_a_grid_share_one_dated_folder(application: Application) -> None:
    # Hydra's default has seconds; microseconds differ without a wait.
    done = application("-m", "lr=1,2,4", "hydra.sweep.dir=multirun/${now:%H-%M-%S-%f}", "hydra.launcher.preload=[]")
    assert done.returncode == 0, done.stderr
    folders = [Path(application.facts[name]["folder"]) for name in ("1", "2", "4")]
    assert len({folder.parent for folder in folders}) == 1
    assert [folder.name for folder in folders] == ["0", "1", "2"]
    for folder, lr in zip(folders, (1, 2, 4), strict=True):
        assert (folder / ".hydra" / "overrides.yaml").read_text() == f"- lr={lr}\n"
        assert f"lr is {lr}" in (folder / "app.log").read_text()
    assert (folders[0].parent / "multirun.yaml").exists()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (13, "ValueError: an unlucky rate"),
        (9, "the process ended before the job was done: SIGKILL"),
        (3, r"sys.exit(3)"),
    ],
)
def test_a_job_that_fails_is_reported_and_the_others_run(application: Application, bad: int, message: str) -> None:
    done = application("-m", f"lr=1,{bad},2", "hydra.launcher.workers=2", "hydra.launcher.preload=[]")
    assert done.returncode == 1
    assert message in done.stderr
    assert set(application.facts) == {"1", str(bad), "2"}


def test_the_basic_launcher_still_works(application: Application) -> None:
    done = application("-m", "lr=1,2", "hydra/launcher=basic")
    assert done.returncode == 0, done.stderr
    assert {each["pid"] for each in application.facts.values()} == {driver_of(done)}


def test_without_a_grid_the_application_runs_in_the_driver(application: Application) -> None:
    done = application("lr=7")
    assert done.returncode == 0, done.stderr
    assert application.facts["7"]["pid"] == driver_of(done)


@pytest.mark.parametrize(("workers", "message"), [("0", "must be at least 1, got 0"), ("many", "'many'")])
def test_a_wrong_number_of_workers_is_refused_before_anything_runs(
    application: Application, workers: str, message: str
) -> None:
    done = application("-m", "lr=1,2", f"hydra.launcher.workers={workers}")
    assert done.returncode != 0
    assert message in done.stderr
    assert application.facts == {}


def test_an_unknown_setting_of_the_launcher_is_refused(application: Application) -> None:
    done = application("-m", "lr=1,2", "hydra.launcher.wrokers=2")
    assert done.returncode != 0 and "wrokers" in done.stderr
    assert application.facts == {}


def test_what_the_jobs_return_comes_back_in_their_order(
    application: Application, start_driver: Callable[..., Any]
) -> None:
    """Sweepers, as Optuna's, read the results."""
    (application.folder / "launch.py").write_text(
        "import app\n"
        "from hydra import compose, initialize\n"
        "from hydra.core.plugins import Plugins\n"
        "from hydra.types import HydraContext\n"
        "from hydra._internal.callbacks import Callbacks\n"
        "from hydra.core.global_hydra import GlobalHydra\n"
        "if __name__ == '__main__':\n"
        "    with initialize(version_base=None, config_path='settings'):\n"
        "        cfg = compose('main', return_hydra_config=True, overrides=['hydra.launcher.workers=2',\n"
        "            'hydra.launcher.preload=[]', 'hydra.mode=MULTIRUN', 'hydra.runtime.output_dir=x'])\n"
        "        loader = GlobalHydra.instance().config_loader()\n"
        "        context = HydraContext(config_loader=loader, callbacks=Callbacks())\n"
        "        launcher = Plugins.instance().instantiate_launcher(\n"
        "            hydra_context=context, task_function=app.train, config=cfg)\n"
        "        returns = launcher.launch([['lr=5'], ['lr=13'], ['lr=6']], initial_job_idx=10)\n"
        "    for each in returns:\n"
        "        print(each.status.name, each._return_value, each.overrides)\n"
    )
    done = subprocess.run(
        [sys.executable, "launch.py"],
        cwd=application.folder,
        env=application.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.splitlines()[-3:] == [
        "COMPLETED 5 ['lr=5']",
        "FAILED an unlucky rate ['lr=13']",
        "COMPLETED 6 ['lr=6']",
    ], done.stderr
    assert [application.facts[name]["num"] for name in ("5", "13", "6")] == [10, 11, 12]


WARNINGS_ARE_ERRORS = {
    "HYDRA_DEPRECATION_WARNINGS_AS_ERRORS": "1",
    "PYTHONWARNINGS": "error::UserWarning,error::DeprecationWarning",
}
RESTRICTED = """
import hydra
from hydra.experimental.callback import Callback


class Seen(Callback):
    def on_job_start(self, config, **given):
        print("a callback saw", config.lr)


class Net:
    def __init__(self, width):
        self.width = width


@hydra.main(config_path=None, execution_whitelist=[f"{__name__}.Net", f"{__name__}.Seen"])
def main(cfg):
    return cfg.lr * hydra.utils.instantiate(cfg.net).width


if __name__ == "__main__":
    main()
"""


@pytest.mark.skipif(not hasattr(hydra.utils, "execution_whitelist"), reason="Hydra 1.3 has no such list")
@pytest.mark.parametrize("callback", [(), ("+hydra.callbacks.seen._target_=__main__.Seen",)], ids=["plain", "callback"])
def test_a_job_may_instantiate_what_its_application_permits_and_nothing_else(
    application: Application, callback: tuple[str, ...]
) -> None:
    (application.folder / "app.py").write_text(RESTRICTED)
    application.environment.update(WARNINGS_ARE_ERRORS)
    words = ("-m", "hydra/sweeper=runmanager", "hydra.sweeper.name=first", "+lr=2,3", "+net.width=5", *callback)
    done = application(*words, "+net._target_=__main__.Net")
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [path.read_text() for path in (application.folder / "outputs/first/runs").glob("*/run.log")]
    assert len(logs) == 2 and all(("a callback saw" in log) == bool(callback) for log in logs)
    done = application(*words, "+net._target_=collections.OrderedDict", "hydra.sweeper.name=second")
    assert done.returncode == 1
    assert "Target 'collections.OrderedDict' is not in the Hydra execution whitelist" in done.stdout + done.stderr


def test_the_built_in_job_uses_nothing_that_hydra_deprecates(tmp_path: Path) -> None:
    words = ["-m", "dataset=fake", "dataset.size=64", "epochs=1", "seed=0,1", "model=logistic"]
    done = subprocess.run(
        [sys.executable, "-m", "runmanager", *words, "name=first"],
        cwd=tmp_path,
        env={**os.environ, **WARNINGS_ARE_ERRORS},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 runs: 2 finished" in done.stdout
