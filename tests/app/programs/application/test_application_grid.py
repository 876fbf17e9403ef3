"""Rules of the grid of a Hydra application, as a shell passes them: the cells are those of single runs."""

import json

import pytest

from runmanager import Sweep
from runmanager.errors import UsageError
from runmanager.results.load.loader import read_summary
from runmanager.results.tables.results_table import result_rows
from runmanager.results.tables.shown_rows import seed_groups

from ....file_schemas import check_sweep_files
from ....standin_apprise import write_standin
from .conftest import Application

URL = "json://user:a-secret@localhost/?a=b"


def test_zip_points_and_exclude(application: Application) -> None:
    (application.folder / "points.yaml").write_text("- {model: small, +extra: 1}\n- {model: big, +extra: 2}\n")
    rules = (
        "hydra.sweeper.zip=[lr,checkpoint.every]",
        "hydra.sweeper.points=points.yaml",
        "hydra.sweeper.exclude=lr>0.15 and model==big",  # without quotes, which a shell takes
    )
    axes = ("lr=0.1,0.2,0.3", "checkpoint.every=1,2,3", "+peak=${lr}")
    python_path = write_standin(application.folder / "standin")
    done = application.run(
        "hydra.sweeper.name=grid",
        f"hydra.sweeper.notify={URL}",
        *rules,
        *axes,
        PYTHONPATH=python_path,
        SENT=str(application.folder / "sent"),
    )
    assert done.status == 0, done.err
    assert "2 cells of the grid are excluded." in done.out
    cells = [
        (each.settings["lr"], each.settings["checkpoint.every"], each.settings["model.width"])
        for each in application.records("grid")
    ]
    assert sorted(cells) == [(0.1, 1, 8), (0.1, 1, 80), (0.2, 2, 8), (0.3, 3, 8)]
    assert json.loads((application.folder / "sent").read_text())[:2] == [[URL], "grid: 4 finished"]
    files = [path for path in (application.folder / "outputs").rglob("*") if path.is_file()]
    assert not [path for path in files if b"a-secret" in path.read_bytes()]
    assert check_sweep_files(application.folder / "outputs" / "grid") >= 5

    assert application.plan("grid")["derived"] == ["copy", "kind", "out", "peak", "when"]
    table = Sweep(application.sweep("grid").root)
    refused_axis = "'peak', which follows from others; what varies here: lr, checkpoint.every, model, extra"
    with pytest.raises(UsageError, match=refused_axis):
        table.compare("peak", metric="score", better="max")

    single = ("lr=0.2", "checkpoint.every=2", "model=small", "+extra=1", "+peak=${lr}")
    again = application.run("hydra.sweeper.name=grid", "hydra.sweeper.dry_run=true", *single)
    assert "keep" in again.out and "1 cell: 1 keep" in again.out
    refused = application.run("hydra.sweeper.exclude=rl>1", "hydra.sweeper.dry_run=true", "lr=1,2")
    assert refused.status == 2 and "`hydra.sweeper.exclude` must name settings, got 'rl'" in refused.err


DERIVED = """
defaults: [_self_, {model: small}]
lr: 0.1
base: 1
seed: 0
sizes: ["${base}", 2, {width: "${seed}"}]
title: "${arch} of seed ${seed}"
arch: ${hydra:runtime.choices.model}
"""


def test_what_follows_from_others_splits_no_pairs_in_lists_and_chains_either(application: Application) -> None:
    (application.folder / "conf" / "config.yaml").write_text(f"{DERIVED}way: fine\n")
    for name in ("small", "big"):
        (application.folder / "conf" / "model" / f"{name}.yaml").write_text("")
    done = application.run("hydra.sweeper.name=list", "base=1,3", "seed=0,1,2")
    assert done.status == 0, done.err
    assert application.plan("list")["derived"] == ["arch", "sizes", "title"]
    (row,) = Sweep(application.sweep("list").root).compare("base", metric="loss").to_dict("records")
    assert row["baseline_runs"] == row["candidate_runs"] == 3

    done = application.run("hydra.sweeper.name=arch", "model=small,big", "seed=0,1,2")
    assert done.status == 0, done.err
    found = Sweep(application.sweep("arch").root)
    (row,) = found.compare("arch", metric="loss").to_dict("records")
    assert row["baseline_runs"] == row["candidate_runs"] == 3
    table = result_rows(*read_summary(application.sweep("arch")))
    assert table.derived == ("sizes", "title") and len(seed_groups(table)) == 2

    done = application.run("hydra.sweeper.name=list", "base=5", "seed=0")
    assert done.status == 0, done.err
    names = {each.settings["base"]: each.name for each in application.records("list")}
    assert names[5].startswith("base=5,seed=0-")
