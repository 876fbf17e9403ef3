"""A Hydra job in its own process: a task sees the same as under Hydra's own `run_job`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runmanager.records.storage.ownership import DRIVEN_VARIABLE

APP = """
import copy, json, logging, os, sys
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import run_job, setup_globals
from hydra.types import HydraContext
from omegaconf import OmegaConf

import runmanager.launching.hydra_job as hydra_job
from runmanager.errors import RecordError
from runmanager.launching.hydra_internals import version_base
from runmanager.launching.work import TaskReference

seen = {}


def task(cfg):
    hydra_config = HydraConfig.get()
    seen.update(
        cfg=OmegaConf.to_yaml(cfg),
        resolved=OmegaConf.to_yaml(cfg, resolve=True),
        is_closed=OmegaConf.is_struct(cfg),
        can_be_changed=not OmegaConf.is_readonly(cfg),
        hydra=OmegaConf.to_yaml(hydra_config, resolve=True),
        hydra_is_readonly=OmegaConf.is_readonly(hydra_config),
        is_own=hydra_config.runtime.output_dir == cfg.folder,
        folder=os.path.relpath(hydra_config.runtime.output_dir),
        exists=Path(hydra_config.runtime.output_dir).is_dir(),
        here=os.path.relpath(os.getcwd(), os.environ["HERE"]),
        variable=os.environ.get("A_VARIABLE"),
        settings={
            path.name: path.read_text().replace(os.environ["HERE"], "here")
            for path in Path(hydra_config.runtime.output_dir).rglob("*.yaml")
        },
        level=logging.getLogger().level,
    )
    cfg.lr = 5
    seen["lr_of_the_job"] = HydraConfig.instance().cfg["lr"] if "lr" in HydraConfig.instance().cfg else None
    if cfg.fails:
        raise ValueError("as configured")
    return cfg.lr


def outcome(run):
    try:
        return ["returned", run()]
    except (ValueError, RecordError) as error:
        return ["raised", str(error)]


def run_with_hydra(config):
    setup_globals()
    result = run_job(
        task_function=task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
        hydra_context=HydraContext(config_loader=None, callbacks=Callbacks(config)),
    )
    if isinstance(result._return_value, Exception):
        raise result._return_value
    return result.return_value


which, overrides = sys.argv[1], sys.argv[2:]
os.environ["HERE"] = os.getcwd()
with initialize_config_dir(os.path.abspath("conf"), **version_base()):
    config = compose("main", overrides=overrides, return_hydra_config=True)
if which == "ours":
    seen["end"] = outcome(lambda: hydra_job.run_hydra_job(TaskReference("__main__", "task"), config))
else:
    seen["end"] = outcome(lambda: run_with_hydra(config))
print(json.dumps(seen))
"""
MAIN = """
lr: 0.1
fails: false
folder: ${hydra:runtime.output_dir}
named: run-${lr}
deep: {inner: ["${lr}", "${oc.env:NOT_THERE,none}"]}
hydra:
  run: {dir: out}
  sweep: {dir: out, subdir: "${named}"}
  job: {chdir: false}
  output_subdir: null
"""


def _answer(which: str, overrides: list[str], folder: Path) -> dict[str, object]:
    folder.mkdir()
    (folder / "conf").mkdir()
    (folder / "conf" / "main.yaml").write_text(MAIN)
    (folder / "app.py").write_text(APP)
    done = subprocess.run(
        [sys.executable, "app.py", which, *overrides],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return seen


def _seen(which: str, overrides: list[str], folder: Path) -> dict[str, object]:
    seen = _answer(which, overrides, folder)
    seen["hydra"] = str(seen["hydra"]).replace(str(folder), "FOLDER")
    seen["resolved"] = str(seen["resolved"]).replace(str(folder), "FOLDER")
    return seen


@pytest.mark.parametrize(
    "overrides",
    [
        ["lr=0.2"],
        ["fails=true", "hydra.verbose=true"],
        ["hydra.job.chdir=true", "hydra.output_subdir=.hydra", "+hydra.job.env_set.A_VARIABLE=set"],
    ],
    ids=["plain", "failing", "with-all-settings"],
)
def test_a_task_sees_the_same_as_under_hydra(overrides: list[str], tmp_path: Path) -> None:
    ours, hydras = (_seen(which, overrides, tmp_path / which) for which in ("ours", "hydras"))
    del ours["lr_of_the_job"], hydras["lr_of_the_job"]  # Hydra's has no settings of the task
    assert ours == hydras
    assert ours["is_own"]
    assert ours["exists"]


def test_a_task_that_changes_its_settings_does_not_change_the_jobs(tmp_path: Path) -> None:
    assert _seen("ours", ["lr=0.2"], tmp_path / "ours")["lr_of_the_job"] == 0.2


def test_a_job_whose_sweep_is_gone_makes_nothing_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DRIVEN_VARIABLE, str(tmp_path / "app" / "out"))
    answer = _answer("ours", ["hydra.sweep.subdir=runs/a"], tmp_path / "app")
    assert "must exist while its runs run" in str(answer["end"])
    assert not (tmp_path / "app" / "out").exists()
