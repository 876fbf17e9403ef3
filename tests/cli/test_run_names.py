"""People read and type the names of runs; their folders have plain ones, or in an older sweep the same."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from runmanager import RunManager, load_model
from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep

from ..older_sweeps import with_names_as_folders
from .conftest import Done, rows_of

CELLS: tuple[dict[str, Any], ...] = (
    {"lr": 0.1, "seed": 0, "größe": "ü"},
    {"lr": 1e-3, "seed": 0, "größe": "学"},
    {"lr": -1, "seed": 1, "größe": "a/b", "dims": [1, 2]},
)
NAMES = ["lr=-1,seed=1,größe=a_b,dims=1x2", "lr=0.001,seed=0,größe=学", "lr=0.1,seed=0,größe=ü"]
FOLDERS = ["lr_-1-seed_1-gro_e_a_b-dims_1x2", "lr_0.001-seed_0-gro_e_", "lr_0.1-seed_0-gro_e_u"]
NEW = {"lr": 7, "seed": 0}


def run_cells(*cells: Mapping[str, Any]) -> SweepPaths:
    manager = RunManager("outputs/first", console=False)
    for params in cells:
        with manager.run(params, nn.Linear(1, 1)) as run:
            for epoch in run.epochs(1):
                epoch.track(1.0, samples=1)
                epoch.log({"val_accuracy": 1 / (2 + abs(params["lr"]))})
    return manager.paths


@pytest.fixture(params=["new", "older"])
def sweep(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepPaths:
    monkeypatch.chdir(tmp_path)
    sweep = run_cells(*CELLS)
    if request.param == "older":
        with_names_as_folders(sweep)
    return sweep


def short(names: list[str]) -> list[str]:
    return sorted(name.rpartition("-")[0] for name in names)


def test_folders_have_plain_names_and_people_read_the_settings(
    sweep: SweepPaths, command: Callable[..., Done], request: pytest.FixtureRequest
) -> None:
    folders = short([folder.name for folder in sweep.runs.iterdir()])
    assert folders == (FOLDERS if "new" in request.node.name else NAMES)
    rows = rows_of(command("table", "first", "--format", "csv").out)
    assert short([row["run"] for row in rows]) == NAMES
    assert {row["run_dir"] for row in rows} == {f"runs/{folder.name}" for folder in sweep.runs.iterdir()}
    assert json.loads(command("best", "first", "--format", "json").out)["best"]["runs"][0]["run"].startswith(NAMES[1])


@pytest.mark.parametrize(("name", "folder"), [*zip(NAMES, FOLDERS, strict=True)])
def test_a_run_is_found_by_its_name_and_by_its_folder(
    sweep: SweepPaths, command: Callable[..., Done], name: str, folder: str
) -> None:
    (run,) = (each for each in read_sweep(sweep).runs if each.name.startswith(f"{name}-"))
    typed = [f"first/{name}", f"first/{run.name}", name, f"first/{run.folder}", run.folder, str(run.paths.root)]
    typed += [run.signature[:8], f"first/{name[:-1]}", f"outputs/first/runs/{run.name}"]
    typed += [f"first/{folder}"] if run.folder != run.name else []
    assert {command("show", each).out.partition("\n")[0] for each in typed} == {f"{run.name}: finished"}
    assert sweep.run(run.name) == sweep.run(run.folder) == run.paths
    with pytest.raises(UsageError, match=f"^Run {re.escape(run.name)} must be one of the built-in job"):
        load_model(f"first/{name}")


def test_a_sweep_goes_on_with_folders_of_both_kinds(sweep: SweepPaths, command: Callable[..., Done]) -> None:
    before = {run.name: run.folder for run in read_sweep(sweep).runs}
    run_cells(*CELLS, NEW)
    after = {run.name: run.folder for run in read_sweep(sweep).runs}
    (added,) = after.keys() - before.keys()
    assert after == {**before, added: added.replace("=", "_").replace(",", "-")}
    (old, _, _) = sorted(before)
    for name in (old, added):
        assert f"{sweep.run(name).root.name}: tags paper" in command("tag", f"first/{name}", "paper").out
    rows = rows_of(command("table", "first", "--where", "tags==paper", "--columns", "run,tags", "--format", "csv").out)
    assert {row["run"] for row in rows} == {old, added}
    assert f"{added}: finished" in command("show", "first/lr=7,seed=0").out
    assert command("diff", f"first/{old}", f"first/{added}").status == 0
    assert command("rm", f"first/{added}", "--yes").status == command("rm", f"first/{old}", "--yes").status == 0
    assert {run.name for run in read_sweep(sweep).runs} == before.keys() - {old}
    assert run_cells(*CELLS, NEW) == sweep
    assert {run.name for run in read_sweep(sweep).runs} == before.keys() - {old}, "what was removed stays so"
